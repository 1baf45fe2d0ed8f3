#include "outsize/profile/links.h"

#include <algorithm>
#include <cmath>

#include "outsize/base/bytes.h"

namespace outsize {
namespace {

// 0 where the machine doesn't say.
double reached_flops_per_s(const Machine& machine) {
  const auto found = machine.flops_per_s.find("float32");
  return found == machine.flops_per_s.end() ? 0 : found->second * machine.achieved_fraction;
}

Status check_has(const Machine& machine) {
  if (machine.out.bytes_per_s <= 0 || machine.in.bytes_per_s <= 0)
    return bad_input("machine {} has no link between device and host: name one that has",
                     machine.name);
  if (reached_flops_per_s(machine) <= 0)
    return bad_input("machine {} doesn't say its float32 operations/s, which links are scaled by",
                     machine.name);
  return Done{};
}

Link scaled(const Link& link, double scale) {
  return {std::llround(static_cast<double>(link.latency_ns) / scale),
          std::max<int64_t>(1, std::llround(static_cast<double>(link.bytes_per_s) * scale))};
}

// What is left of a slowdown when copies move at `rate` instead of `full`.
int64_t milder(int64_t permille, int64_t rate, int64_t full) {
  const double busy =
      std::min(1.0, static_cast<double>(rate) / static_cast<double>(std::max<int64_t>(1, full)));
  return 1000 - std::llround(static_cast<double>(1000 - permille) * busy);
}

}  // namespace

Result<Machine> with_links_of(const Machine& here, const Machine& card) {
  for (const Machine* machine : {&here, &card})
    if (Status has = check_has(*machine); !has.ok()) return has.error();
  const double scale = reached_flops_per_s(here) / reached_flops_per_s(card);
  Machine made = here;
  made.name = fmt::format("{} with the links of {}", here.name, card.name);
  made.source =
      fmt::format("{}; links of {} at {:.3g} of their speed", here.source, card.name, scale);
  made.out = scaled(card.out, scale);
  made.in = scaled(card.in, scale);
  made.both_bytes_per_s = std::llround(static_cast<double>(card.both_bytes_per_s) * scale);
  made.sync_bytes_per_s = 0;  // all cores don't make a link faster

  const int64_t sum = made.out.bytes_per_s + made.in.bytes_per_s;
  const int64_t most = made.both_bytes_per_s > 0 ? std::min(sum, made.both_bytes_per_s) : sum;
  const int64_t own = std::min(here.out.bytes_per_s, here.in.bytes_per_s);
  const int64_t beside_ops = own / 1000 * here.copy_permille_beside_compute;
  if (most > beside_ops)
    return bad_input(
        "the links of {}: for what {} computes they are {}/s, and beside its ops it copies {}/s; "
        "name a machine with slower links",
        card.name, here.name, format_bytes(most), format_bytes(beside_ops));
  made.compute_permille_beside_copy = milder(here.compute_permille_beside_copy, most, own);
  made.copy_permille_beside_compute = 1000;
  return made;
}

}  // namespace outsize
