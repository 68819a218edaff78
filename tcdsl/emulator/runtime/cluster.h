/* Clusters: blocks that run in turns, their barrier, and who may touch whose shared memory.
 *
 * The barrier is split: a thread arrives, and waits later.  A phase is over when all threads of all
 * blocks have arrived.  What that orders is in order.h. */
#pragma once
#include "access.h"
#include "fibres.h"
#include "mbarriers.h"

static uint32_t phases_done, arrived, cluster_threads_done;
static Phases everybody; /* of the cluster's barrier, where threads are known one by one */

static void start_cluster() {
  phases_done = arrived = cluster_threads_done = 0;
  if (!is_by_thread()) return;
  know_threads();
  everybody = {};
  everybody.coming = new_row();
  everybody.known = new_row();
}

/* A thread of any block for which *is_it*, for messages; where there is one. */
template <typename F> static const Fibre *find_in_cluster(const Block **where, F is_it) {
  for (*where = blocks; *where < blocks + launch.cluster; ++*where)
    for (uint32_t t = 0; t < launch.n_threads; ++t)
      if (is_it((*where)->fibres[t])) return &(*where)->fibres[t];
  return nullptr;
}

EMU_COLD static const char *thread_text(const Block *b, const Fibre *f) {
  static char text[160];
  snprintf(text, sizeof text, "thread %s of block %s", text_of(f->thread),
           text_of(dim_of(b->index, launch.grid)));
  return text;
}

EMU_COLD static void fail_after_end(Site site) {
  const Block *b;
  const Fibre *f = find_in_cluster(&b, [](const Fibre &g) { return g.state == DONE; });
  fail(DIVERGENT_BARRIER, site,
       "divergent barrier: this thread is at the cluster's barrier, and %s has ended",
       thread_text(b, f));
}

static void require_cluster(Site site) {
  if (!is_cluster()) fail(LIMIT, site, "the barrier of a cluster in a launch without clusters");
}

EMU_LOCAL void emu_cluster_arrive(const char *file, int line) {
  Fibre *f = current;
  const Site site = {file, line, EMU_CALLER};
  require_cluster(site);
  if (f->arrivals != f->waits)
    fail(DIVERGENT_BARRIER, site,
         "divergent barrier: this thread arrives at the cluster's barrier twice without a wait");
  if (cluster_threads_done) fail_after_end(site);
  uint32_t &published = own->published[f->arrivals & 3];
  if (own->ordered > published) published = own->ordered;
  ++f->arrivals;
  if (counts_phases()) {
    if (cluster_start + (uint64_t)PHASE * (f->arrivals + 2) > 0xffff0000u)
      fail(LIMIT, site, "too many barriers in one launch to emulate");
    set_clock(*f);
  } else {
    tell(everybody);
  }
  if (++arrived < launch.cluster * launch.n_threads) return;
  arrived = 0;
  if (is_by_thread()) memcpy(everybody.known, everybody.coming, n_known() * sizeof(uint32_t));
  ++phases_done;
  for (Block *b = blocks; b < blocks + launch.cluster; ++b)
    for (uint32_t t = 0; t < launch.n_threads; ++t)
      if (b->fibres[t].state == AT_CLUSTER_BARRIER) b->fibres[t].state = READY;
}

EMU_LOCAL void emu_cluster_wait(const char *file, int line) {
  Fibre *f = current;
  const Site site = {file, line, EMU_CALLER};
  require_cluster(site);
  if (f->arrivals == f->waits)
    fail(DIVERGENT_BARRIER, site,
         "divergent barrier: this thread waits at the cluster's barrier, where it has not arrived");
  if (phases_done < f->arrivals) {
    f->state = AT_CLUSTER_BARRIER;
    f->site = site;
    leave(ENDED);
  }
  ++f->waits;
  if (f->waits > f->phases) f->phases = f->waits;
  if (counts_phases()) set_clock(*f);
  else learn(everybody);
}

/* The counterpart of *p*, of this block's shared memory, in the block of *rank*. */
EMU_LOCAL void *emu_cluster_map(const void *p, unsigned rank, const char *file, int line) {
  const Site site = {file, line, EMU_CALLER};
  const Region *r = region_at((uintptr_t)p);
  if (!r || !(r->flags & SHARED) || r->rank != own->rank)
    fail(OUT_OF_BOUNDS, site, "the address of another block's shared memory is asked for with one "
         "that is not of this block's shared memory");
  if (rank >= launch.cluster)
    fail(OUT_OF_BOUNDS, site, "block %u of a cluster of %u", rank, launch.cluster);
  return (char *)p - distance_of(own->rank) + distance_of(rank);
}

/* ---- the end of a thread, and of a block ------------------------------------------------- */
static void check_access_of_ended(const Region &r, uint64_t cell, const Access &a, bool writes) {
  if (a.stamp < (is_by_thread() ? block_start : cluster_start) || happened_before(a)) return;
  if (a.warp != MANY && !is_of_several(a) && rank_of(a.warp) == own->rank) return;
  fail(RACE, NO_SITE, "data race at %s: the %s by %s and the end of this block are not ordered: no "
       "barrier of the cluster lies between them", place(r, r.base + (cell << r.shift)),
       verb(writes, a.flags & ATOMIC), who(a));
}

static void check_cells_of_ended(const Region &r) {
  for (uint64_t i = 0; i < r.size >> r.shift; ++i) {
    check_access_of_ended(r, i, r.cells[i].write, true);
    check_access_of_ended(r, i, r.cells[i].read, false);
  }
}

/* The current thread was its block's last: nobody may touch the block's shared memory now. */
static void check_accesses_from_outside() {
  for (uint32_t t = 0; t < launch.n_threads; ++t)
    if (own->fibres[t].phases > current->phases) current->phases = own->fibres[t].phases;
  if (counts_phases()) set_clock(*current);
  check_arrivals_from_outside();
  for (uint32_t i = n_arrays; i < n_regions; ++i)
    if (regions[i].rank == own->rank && regions[i].flags & FROM_OUTSIDE)
      check_cells_of_ended(regions[i]);
  Region &dynamic = dynamic_shared[own->rank];
  if (dynamic.flags & FROM_OUTSIDE) check_cells_of_ended(dynamic);
}

static void end_thread_of_cluster() {
  Fibre *f = current;
  ++cluster_threads_done;
  if (f->arrivals != f->waits)
    fail(DIVERGENT_BARRIER, NO_SITE,
         "divergent barrier: this thread ended between its arrival at the cluster's barrier and "
         "the wait");
  if (arrived) {
    const Block *b;
    const uint32_t phase = phases_done;
    const Fibre *g = find_in_cluster(&b, [=](const Fibre &h) { return h.arrivals > phase; });
    fail(DIVERGENT_BARRIER, NO_SITE,
         "divergent barrier: this thread ended, and %s has arrived at the cluster's barrier",
         thread_text(b, g));
  }
  if (own->threads_done == launch.n_threads) check_accesses_from_outside();
}

/* ---- when no thread of the cluster can go on ---------------------------------------------- */
EMU_COLD static void cluster_deadlock() {
  const Block *b, *late;
  const uint32_t phase = phases_done;
  const Fibre *f =
      find_in_cluster(&b, [](const Fibre &g) { return g.state == AT_CLUSTER_BARRIER; });
  const Fibre *g = find_in_cluster(
      &late, [=](const Fibre &h) { return h.arrivals <= phase && h.state != READY; });
  fail(DEADLOCK, f->site, "deadlock: this thread waits at the barrier of the cluster; but %s %s",
       thread_text(late, g), what_waits(*g));
  set_thread(b->index, f->thread);
}
