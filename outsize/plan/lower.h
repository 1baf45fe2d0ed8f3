// Lowering: gives a sequence of instructions the waits that make it safe on concurrent streams. A
// *sequence* is a plan without waits whose list is a legal sequential run, addresses included;
// lowered, it computes the same for every timing of its streams.
//
//   #0 compute Run(op0 → [0,64))                   waits
//   #1 out     Copy([0,64) → host)                 #0      it reads what #0 writes
//   #2 compute Run(op1, workspace [64,96))         -       same stream as #0, bytes of its own
//   #3 in      Copy(host → [0,64))                 #1      writes what #1 reads; #0 follows from #1
//
// Two instructions of different streams conflict when they touch a byte of a tier and one of them
// writes it; the later one must start after the earlier one has ended. Waits that follow from
// others (stream order, or what a waited-for instruction itself waited for) are left out. Pure
// functions.
#pragma once

#include "outsize/plan/plan.h"

namespace outsize {

// The same plan with `waits` set in every instruction (earlier waits are dropped). Cost: about
// O(n log n) for n operands. Requires: operands, parts and streams in range, as check_plan wants
// them.
Plan lower(const Graph& graph, Plan sequence);

}  // namespace outsize
