// libtorch's CPU memory from an arena that keeps its pages.
#pragma once

#include "remat/memory/ledger.h"
#include "remat/memory/page_arena.h"

namespace remat {

// From now on large CPU tensors live in a PageArena (page_arena.h) of this
// process: freed memory serves the next tensor without page faults, and the
// process holds hardly more than its tensors needed at once. Smaller ones stay
// with the C library. For the whole process and for good: call it early in
// main, before other threads use tensors. Further calls do nothing.
//
// MemoryMeter and libtorch's profiler count as before. Instead of c10::Error, a
// tensor for which there is no memory throws remat::Error.
void install_cpu_allocator();

bool is_cpu_allocator_installed();

// PageArena::set_limit() of that arena: free memory is given back, then whoever
// has a MemorySpiller is asked, then a tensor throws BudgetError, with the
// table of what holds the memory. Throws UsageError before it is installed.
void set_cpu_allocator_limit(int64_t resident_bytes,
                             int64_t process_bytes = INT64_MAX);

// Gives its free pages back to the system; nothing before it is installed.
void release_cached_cpu_memory();

// Of that arena; all zero before it is installed.
PageArenaStats cpu_allocator_stats();

// The tensors in it, from when it was installed, in bytes that were asked for.
// Stays for good.
MemoryLedger& cpu_memory_ledger();

}  // namespace remat
