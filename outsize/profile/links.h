// A machine with another one's links: this CPU beside a link as fast, for what it computes, as the
// one that a card sits behind.
//
//   with_links_of(here, v100)   // here: 0.1 Tflop/s; v100: 10 Tflop/s reached, 12 GB/s, 9 us
//   -> here's ops, 12 GB/s x 0.1 / 10 = 120 MB/s each way, 900 us
//
// Compute ÷ link stays the card's, so a step's plan and its fraction of compute do too, as far as
// its ops' times relate to each other as they do on the card.
#pragma once

#include "outsize/base/result.h"
#include "outsize/profile/machine.h"

namespace outsize {

// `here` with `card`'s links between device and host, scaled by float32 operations/s reached; disk
// and memory stay here's. An op beside a slower copy is slowed by less: in proportion to the bytes
// moved. kBadInput where either lacks a link or its float32 rate, or where this machine can't copy
// that fast beside its ops.
Result<Machine> with_links_of(const Machine& here, const Machine& card);

}  // namespace outsize
