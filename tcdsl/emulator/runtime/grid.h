/* Barriers of all blocks, of a cooperative launch.
 *
 * Blocks run one after another, so that a block whose threads are all at such a barrier is parked:
 * its fibres wait, with their stacks, until all blocks are there.  What happened before is then
 * ordered before all that follows, as if another launch began.  What blocks have in shared memory
 * is theirs until they end; here it does not outlive the barrier, so that reading it is a finding. */
#pragma once
#include "collectives.h"

static Fibre *parked; /* block after block, where the launch is cooperative */
static uint32_t n_parked;
static uint32_t grid_phase; /* barriers that all blocks have passed */
static bool had_last; /* whether the barrier was said to be the last one */

static void start_grid() {
  n_parked = grid_phase = had_last = 0;
  const size_t bytes = (size_t)launch.n_blocks * launch.n_threads * sizeof(Fibre);
  if (launch.is_cooperative) parked = (Fibre *)memset(launch_memory(bytes), 0, bytes);
}

EMU_LOCAL void emu_grid_barrier(int number, int is_last, const char *file, int line) {
  Fibre *f = current;
  f->site = {file, line, EMU_CALLER};
  if (!launch.is_cooperative)
    fail(LIMIT, f->site, "a barrier of all blocks in a launch that is not cooperative: they may "
         "not all be there");
  if (number != (int)grid_phase + 1 || had_last)
    fail(DIVERGENT_BARRIER, f->site, "divergent barrier: this thread is at number %d of the barriers "
         "of all blocks%s, and %u are over", number, had_last ? ", after the last" : "", grid_phase);
  if (is_cluster()) fail(LIMIT, f->site, "a barrier of all blocks in a launch with clusters");
  f->operand = is_last;
  f->state = AT_GRID_BARRIER;
  ++own->at_grid_barrier;
  leave(ENDED);
}

/* Where blocks wait for signals, they run in the order of their numbers: whoever has not signalled
 * by now starts later, or never does. */
EMU_LOCAL void emu_no_signal(const char *file, int line) {
  current->site = {file, line, EMU_CALLER};
  fail(DEADLOCK, current->site, "deadlock: this thread waits for a signal that no block before its "
       "own has given");
}

static bool is_at_grid_barrier() {
  return launch.is_cooperative && own->at_grid_barrier == launch.n_threads;
}

static void park_block() {
  Fibre *const kept = parked + (size_t)own->index * launch.n_threads;
  memcpy(kept, own->fibres, launch.n_threads * sizeof(Fibre));
  for (uint32_t t = 0; t < launch.n_threads; ++t) own->fibres[t].stack = nullptr;
  ++n_parked;
}

static void resume_block(Block &b) {
  memcpy(b.fibres, parked + (size_t)b.index * launch.n_threads, launch.n_threads * sizeof(Fibre));
  for (uint32_t t = 0; t < launch.n_threads; ++t) b.fibres[t].state = READY;
}

/* The first thread that is parked and for which *is_it*, if there is one. */
template <typename F> static const Fibre *find_parked(F is_it) {
  for (size_t i = 0; i < (size_t)launch.n_blocks * launch.n_threads; ++i)
    if (parked[i].state == AT_GRID_BARRIER && is_it(parked[i])) return &parked[i];
  return nullptr;
}

/* All blocks have had their turn, and some wait for all; false if not all do. */
static bool end_grid_phase() {
  const Fibre *first = find_parked([](const Fibre &) { return true; });
  const bool is_last = first->operand;
  if (n_parked < launch.n_blocks) {
    fail(DEADLOCK, first->site, "deadlock: this thread waits at the barrier of all blocks; but %u of "
         "%u blocks have ended", launch.n_blocks - n_parked, launch.n_blocks);
  } else if (const Fibre *f = find_parked([=](const Fibre &g) { return g.operand != is_last; })) {
    fail(DIVERGENT_BARRIER, f->site, "divergent barrier: for some threads this is the last barrier of "
         "all blocks, and for others it is not");
  }
  if (outcome == FOUND) return false;
  start_launch_order();
  had_last = is_last;
  n_parked = 0;
  ++grid_phase;
  return true;
}
