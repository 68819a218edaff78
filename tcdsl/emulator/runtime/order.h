/* Which accesses happen before which: the order behind the race check.
 *
 * Everything runs on one processor thread, block after block, so that a counter `now` gives every
 * access a stamp.  It is advanced by whatever orders threads.  An access of thread t with stamp s
 * happens before what thread u does now iff u knows t's accesses up to s, through
 *   - a barrier of the block: all its accesses up to `barrier`;
 *   - __syncwarp: rows[u][lane of t], for threads of one warp;
 *   - a fence and an atomic access by t's side, then an atomic access by u's side of the same
 *     location ("publish" and "acquire" below), as in a ticket for the last block.  The fence that
 *     CUDA also wants on the reader's side is not asked for;
 *   - a barrier in phases ("mbarrier"): what t did before it arrived, if u has waited for that phase;
 * and what the others knew then.  Shuffles and votes order nothing: CUDA promises it of
 * __syncwarp only.
 *
 * The blocks of a cluster run in turns.  A stamp is then a pair, in one number:
 *
 *     cluster_start + PHASE * arrivals + ticks
 *
 * how often the thread has arrived at the cluster's barrier, and how often its block has met a
 * barrier, or one of its warps a __syncwarp.  Both are the same for threads of a block that have
 * come equally far, so that accesses of many can be one Access.  After n phases a thread knows
 * all accesses of the cluster before the n-th arrival; of its own block's, those before the block's
 * last barrier too (`ordered`); of another block's, those before the last barrier that one of its
 * threads had met when it arrived for the n-th time (`published`).  Fences and atomics order nothing
 * between their blocks.
 *
 * Not so where blocks copy boxes, and tell one another by barriers in phases what they have read:
 * there stamps are plain, and what a thread knows of each thread of the cluster is kept as of those
 * of a block; so is what the cluster's barrier orders (mbarriers.h). */
#pragma once
#include "state.h"

enum : uint32_t { WRITTEN = 1, ATOMIC = 2, INVALID = 4, IN_FLIGHT = 8 };
static const uint32_t MANY = 0xffffffffu; /* as a warp: threads of several warps, ... */
static const uint32_t MANY_OF_ONE = MANY - MAX_CLUSTER; /* ... of the cluster's block of a rank */
static const uint32_t SEVERAL = 0x80000000u; /* ... told apart, where barriers in phases order them */

/* The last access of one kind to a piece of memory: by lanes of one warp, or by MANY.  All its
 * threads were unordered with one another; the stamp is the last one's. */
struct Access {
  uint32_t stamp;
  uint32_t warp; /* counted through all blocks of the launch */
  uint32_t lanes;
  uint32_t flags;
};

/* In a cluster `now` and `barrier` are the current fibre's. */
static uint32_t now = 1, launch_start, block_start, barrier;
static struct { uint32_t warp, lanes, lane; } me; /* the current fibre */

/* Of each thread of the block; never cleared, as stamps of earlier blocks are below block_start. */
struct Knowledge {
  uint32_t row[32];       /* what it knows of its warp through __syncwarp */
  uint32_t fence;         /* its last fence, ... */
  uint32_t fence_barrier; /* ... and what it knew then: of the block, ... */
  uint32_t fence_row[32]; /* ... and of its warp */
  uint32_t known_fence;   /* its last fence before the last barrier */
};
static bool has_fences; /* in this block, or a cluster's blocks */

/* What a thread publishes: the accesses of its block's (or cluster's) thread t up to upto[t]. */
struct Log;
struct Acquired { Log *log; uint32_t size, thread, stamp; };
struct Snapshot {
  uint32_t block_start, thread, fence, barrier;
  const uint32_t *upto;
  const Acquired *acquired; /* what it had acquired itself */
  uint32_t n_acquired;
};
struct Log { const void *location; Vector<Snapshot *> entries; };
static Vector<Log *> logs;         /* open addressing by location; size is the number in use */
static Vector<Acquired> acquired;  /* by threads of this block */
static Snapshot *latest;

/* By thread that knows and thread, of the cluster: up to where barriers in phases have ordered the
 * accesses of the one before those of the other; null in blocks without such barriers. */
static uint32_t *known_through_phases;
static const uint32_t MOST_KNOWN = 2048, MOST_WARPS = MOST_KNOWN / 32;

/* The threads of an Access that SEVERAL of a block have made, by warp: those lanes, up to a stamp. */
struct Several { uint32_t stamp[MOST_WARPS], lanes[MOST_WARPS]; };
struct Joined { uint32_t from, warp, lanes, stamp, to; }; /* one more thread: what comes of it */
static Vector<Several> several; /* of the block; entry 0 is nobody */
static Vector<Joined> joined;

/* Whoever learns of others, or becomes another fibre, calls this: what an access of a cell makes of
 * what is known of it is kept until then (access.h). */
static uint32_t n_learnt;
static EMU_HOT void forget_accesses() { ++n_learnt; }

/* Whether blocks run at the same time; and whether that is told by phases, or of each thread. */
static EMU_HOT bool is_cluster() { return launch.cluster > 1; }
static EMU_HOT bool counts_phases() { return is_cluster() && !launch.has_boxes; }
static EMU_HOT bool is_by_thread() { return is_cluster() && launch.has_boxes; }

static EMU_HOT bool in_earlier_epoch(uint32_t stamp) {
  return stamp - block_start <= barrier - block_start;
}

static void start_launch_order() {
  launch_start = ++now; /* all earlier stamps are below it, all later ones at least it */
}

static void end_launch_order() {
  free_launch_memory();
  logs = {};
  acquired = {};
  several = {};
  joined = {};
}

static void start_block_order() {
  block_start = barrier = ++now; /* below the stamps of this block, above those of earlier ones */
  ++now;
  acquired.size = several.size = joined.size = 0;
  known_through_phases = nullptr;
  latest = nullptr;
  has_fences = false;
  forget_accesses();
}

/* ---- clusters ---------------------------------------------------------------------------- */
static const uint32_t PHASE = 1 << 14;
static uint32_t cluster_start;

static uint32_t n_clusters() { return launch.n_blocks / launch.cluster; }
static uint32_t ticks_of(uint32_t stamp) { return (stamp - cluster_start) % PHASE; }
static uint32_t rank_of_block(uint32_t index) {
  const Dim b = dim_of(index, launch.grid), c = launch.cluster_dims;
  return b.x % c.x + c.x * (b.y % c.y + c.y * (b.z % c.z));
}
static uint32_t rank_of(uint32_t warp) {
  return warp >= MANY_OF_ONE ? warp - MANY_OF_ONE : rank_of_block(warp / launch.n_warps);
}
/* The block of a *rank* in cluster number *cluster*. */
static uint32_t block_of(uint32_t cluster, uint32_t rank) {
  const Dim c = launch.cluster_dims, g = launch.grid;
  const Dim of_all = dim_of(cluster, {g.x / c.x, g.y / c.y, g.z / c.z}), own = dim_of(rank, c);
  return of_all.x * c.x + own.x + g.x * (of_all.y * c.y + own.y + g.y * (of_all.z * c.z + own.z));
}
/* Threads and warps of the cluster, or of the one block. */
static uint32_t n_known() { return launch.cluster * launch.n_threads; }
static uint32_t known_self() { return own->rank * launch.n_threads + current->index; }
static uint32_t known_warp(uint32_t warp) {
  return (is_cluster() ? rank_of(warp) * launch.n_warps : 0) + warp % launch.n_warps;
}

static void start_cluster_order() {
  block_start = now; /* below the stamps of this cluster, above those of earlier ones */
  cluster_start = now + 1;
}

static void end_cluster_order(uint32_t n_phases) { now = cluster_start + (n_phases + 1) * PHASE; }

static void set_clock(const Fibre &f) {
  forget_accesses();
  now = cluster_start + PHASE * f.arrivals + own->ticks;
  barrier = cluster_start + PHASE * f.phases - 1;
}

static void tick() {
  if (++own->ticks == PHASE)
    fail(LIMIT, NO_SITE, "too many barriers in one block of a cluster to emulate");
}

static void order_block_of_cluster() {
  uint32_t phases = 0;
  for (uint32_t t = 0; t < launch.n_threads; ++t)
    if (own->fibres[t].phases > phases) phases = own->fibres[t].phases;
  for (uint32_t t = 0; t < launch.n_threads; ++t) own->fibres[t].phases = phases;
  tick();
  own->ordered = own->ticks;
  set_clock(*current);
}

static void order_by_barrier() {
  forget_accesses();
  if (counts_phases()) return order_block_of_cluster();
  barrier = own->last_barrier = now++;
  if (!has_fences) return;
  for (uint32_t t = 0; t < launch.n_threads; ++t) {
    Knowledge &k = own->knowledge[t];
    k.known_fence = k.fence;
    if (k.fence >= block_start && k.fence_barrier > own->known_fence_barrier)
      own->known_fence_barrier = k.fence_barrier;
  }
}

/* Order the lanes of one warp, of which *first* is lane 0, among one another. */
static void order_lanes(uint32_t first, uint32_t lanes) {
  forget_accesses();
  const uint32_t stamp = counts_phases() ? cluster_start + own->ticks : now++;
  uint32_t joined[32] = {};
  for (uint32_t rest = lanes; rest; rest &= rest - 1) {
    const uint32_t *row = own->knowledge[first + (uint32_t)__builtin_ctz(rest)].row;
    for (int x = 0; x < 32; ++x) joined[x] = row[x] > joined[x] ? row[x] : joined[x];
  }
  for (uint32_t rest = lanes; rest; rest &= rest - 1) joined[__builtin_ctz(rest)] = stamp;
  for (uint32_t rest = lanes; rest; rest &= rest - 1)
    memcpy(own->knowledge[first + (uint32_t)__builtin_ctz(rest)].row, joined, sizeof joined);
  if (!counts_phases()) return;
  uint32_t phases = 0;
  for (uint32_t rest = lanes; rest; rest &= rest - 1) {
    const uint32_t known = own->fibres[first + (uint32_t)__builtin_ctz(rest)].phases;
    phases = known > phases ? known : phases;
  }
  for (uint32_t rest = lanes; rest; rest &= rest - 1)
    own->fibres[first + (uint32_t)__builtin_ctz(rest)].phases = phases;
  tick();
  set_clock(*current);
}

/* ---- fences and atomics ------------------------------------------------------------------ */
static void order_by_fence() {
  if (counts_phases()) return;
  Knowledge &k = own->knowledge[current->index];
  k.fence = now++;
  k.fence_barrier = barrier;
  memcpy(k.fence_row, k.row, sizeof k.row);
  has_fences = true;
}

static bool has_published(const Knowledge &k) {
  return has_fences && (k.fence >= block_start || own->known_fence_barrier >= block_start);
}

static Snapshot *snapshot(const Knowledge &k) {
  const uint32_t self = known_self(), index = current->index;
  if (latest && latest->thread == self && latest->fence == k.fence && latest->barrier == barrier &&
      latest->n_acquired == acquired.size)
    return latest;
  uint32_t *all = (uint32_t *)launch_memory(n_known() * sizeof(uint32_t)); /* 0: of other blocks */
  uint32_t *upto = (uint32_t *)memset(all, 0, n_known() * sizeof(uint32_t)) + (self - index);
  const bool fenced = k.fence >= block_start;
  const uint32_t base = fenced && k.fence_barrier > own->known_fence_barrier ? k.fence_barrier
                                                                       : own->known_fence_barrier;
  for (uint32_t t = 0; t < launch.n_threads; ++t)
    upto[t] = own->knowledge[t].known_fence > base ? own->knowledge[t].known_fence : base;
  for (uint32_t lane = 0; fenced && lane < 32; ++lane) {
    const uint32_t t = (index & ~31u) + lane;
    if (t < launch.n_threads && k.fence_row[lane] > upto[t]) upto[t] = k.fence_row[lane];
  }
  if (fenced) upto[index] = k.fence;
  Acquired *copy = (Acquired *)launch_memory(acquired.size * sizeof(Acquired));
  if (acquired.size) memcpy(copy, acquired.items, acquired.size * sizeof(Acquired));
  latest = (Snapshot *)launch_memory(sizeof(Snapshot));
  *latest = {block_start, self, k.fence, barrier, all, copy, acquired.size};
  return latest;
}

static Log **place_of(const void *location) {
  uint32_t i = (uint32_t)(((uintptr_t)location >> 1) * 0x9e3779b97f4a7c15u >> 32);
  for (;; ++i) {
    Log **place = &logs.items[i & (logs.room - 1)];
    if (!*place || (*place)->location == location) return place;
  }
}

static Log *log_of(const void *location) {
  if (2 * logs.size >= logs.room) { /* grow; launch memory is freed with the launch */
    const Vector<Log *> old = logs;
    logs.room = old.room ? 2 * old.room : 64;
    logs.items = (Log **)launch_memory(logs.room * sizeof(Log *));
    memset(logs.items, 0, logs.room * sizeof(Log *));
    for (uint32_t i = 0; i < old.room; ++i)
      if (old.items[i]) *place_of(old.items[i]->location) = old.items[i];
  }
  Log **place = place_of(location);
  if (!*place) {
    *place = (Log *)launch_memory(sizeof(Log));
    memset(*place, 0, sizeof(Log));
    (*place)->location = location;
    ++logs.size;
  }
  return *place;
}

static void order_by_atomic(const void *location) {
  const Knowledge &k = own->knowledge[current->index];
  const bool publishes = has_published(k);
  if (!publishes && !logs.size) return; /* plain counting, the common case */
  Log *log = publishes ? log_of(location) : *place_of(location);
  if (!log) return;
  if (log->entries.size) acquired.push({log, log->entries.size, known_self(), now});
  forget_accesses();
  if (publishes) log->entries.push(snapshot(k));
}

/* ---- asking ------------------------------------------------------------------------------ */
/* Up to where the current one knows the accesses of a *thread*, of the cluster. */
static uint32_t known_of(uint32_t thread) {
  const uint32_t self = known_self(), first = own->rank * launch.n_threads, t = thread - first;
  uint32_t upto = known_through_phases ? known_through_phases[self * n_known() + thread] : 0;
  if (t >= launch.n_threads) return upto; /* of another block */
  if (thread == self) return now;
  if (upto < barrier) upto = barrier;
  const uint32_t *row = own->knowledge[current->index].row;
  return t / 32 == current->index / 32 && row[t & 31] > upto ? row[t & 31] : upto;
}
static bool knows_thread(uint32_t thread, uint32_t stamp) {
  return stamp <= known_of(thread);
}

/* Whether the first *size* entries of *log*, in the order of their blocks, cover the access of
 * *thread* at *stamp*, be it through a block that had acquired it from another location. */
static bool covers(const Log *log, uint32_t size, uint32_t thread, uint32_t stamp, int depth) {
  uint32_t low = 0, high = size; /* the first entry of a block that started after stamp */
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    if (log->entries.items[middle]->block_start <= stamp) low = middle + 1;
    else high = middle;
  }
  for (uint32_t i = low; i-- > 0 && log->entries.items[i]->block_start ==
                                        log->entries.items[low - 1]->block_start;)
    if (stamp <= log->entries.items[i]->upto[thread]) return true;
  for (uint32_t i = size; depth > 0 && i-- > low;) { /* through a block in between */
    const Snapshot *through = log->entries.items[i];
    for (uint32_t j = 0; j < through->n_acquired; ++j)
      if (through->acquired[j].log != log &&
          covers(through->acquired[j].log, through->acquired[j].size, thread, stamp, depth - 1))
        return true;
  }
  return false;
}

static bool has_acquired(uint32_t thread, uint32_t stamp) {
  for (uint32_t i = 0; i < acquired.size; ++i) {
    const Acquired &a = acquired.items[i];
    if (knows_thread(a.thread, a.stamp) && covers(a.log, a.size, thread, stamp, 2)) return true;
  }
  return false;
}

/* The same in a cluster, of which *a* may be; what was before its start is of other clusters. */
static bool happened_before_in_cluster(const Access &a) {
  if (a.stamp < cluster_start || a.warp == MANY) return false;
  const uint32_t ticks = ticks_of(a.stamp), rank = rank_of(a.warp), phases = current->phases;
  if (rank != own->rank) return phases && ticks < blocks[rank].published[phases - 1 & 3];
  if (ticks < own->ordered) return true;
  if (a.warp != me.warp) return false;
  const uint32_t *row = own->knowledge[current->index].row;
  for (uint32_t rest = a.lanes & ~me.lanes; rest; rest &= rest - 1)
    if (row[__builtin_ctz(rest)] < cluster_start + ticks) return false;
  return true;
}

static EMU_HOT bool is_of_several(const Access &a) {
  return a.warp >= SEVERAL && a.warp < MANY_OF_ONE;
}

/* Whether *is_it* of each of *threads*, by its number in the cluster, and its stamp. */
template <typename F> static bool each_of_several(const Several &threads, F is_it) {
  const uint32_t n_warps = launch.cluster * launch.n_warps;
  for (uint32_t warp = 0; warp < n_warps; ++warp) {
    const uint32_t first =
      warp / launch.n_warps * launch.n_threads + warp % launch.n_warps * 32;
    for (uint32_t rest = threads.lanes[warp]; rest; rest &= rest - 1)
      if (!is_it(first + (uint32_t)__builtin_ctz(rest), threads.stamp[warp])) return false;
  }
  return true;
}

EMU_COLD static bool happened_before_slowly(Access a) {
  if (counts_phases()) return happened_before_in_cluster(a);
  if (is_of_several(a) && a.stamp >= block_start)
    return each_of_several(several.items[a.warp - SEVERAL], knows_thread);
  if (a.warp == MANY || is_of_several(a)) /* of other blocks: taken for ordered where anything was acquired at all */
    return a.stamp < block_start && acquired.size > 0;
  const uint32_t first =
    (is_cluster() ? rank_of(a.warp) * launch.n_threads : 0) + a.warp % launch.n_warps * 32;
  for (uint32_t rest = a.lanes; rest; rest &= rest - 1) {
    const uint32_t thread = first + (uint32_t)__builtin_ctz(rest);
    const bool known = a.stamp >= block_start && knows_thread(thread, a.stamp);
    if (!known && !has_acquired(thread, a.stamp)) return false;
  }
  return true;
}

/* Whether all of *a* happened before what the current fibre does now. */
static EMU_HOT bool happened_before(const Access &a) {
  return (in_earlier_epoch(a.stamp) && __builtin_expect(!is_by_thread(), 1)) ||
         a.stamp < launch_start || (a.warp == me.warp && a.lanes == me.lanes) || happened_before_slowly(a);
}

/* Make *a* an access by the current fibre; what it was must have happened before. */
static EMU_HOT void set_access(Access &a, uint32_t flags) { a = {now, me.warp, me.lanes, flags}; }

/* Add the current fibre to *a*, whose threads it is not ordered with.  An access of earlier blocks
 * keeps its stamp, lest a barrier of this block seem to order it. */
static Access join_in_cluster(Access a) {
  const bool is_of_one = a.stamp >= cluster_start && a.warp != MANY && rank_of(a.warp) == own->rank;
  if (a.warp == me.warp) a.lanes |= me.lanes;
  else a.warp = is_of_one ? MANY_OF_ONE + own->rank : MANY;
  if (a.stamp < cluster_start) return a;
  const uint32_t ticks = ticks_of(a.stamp), arrivals = (a.stamp - cluster_start) / PHASE;
  a.stamp = cluster_start + (arrivals > current->arrivals ? arrivals : current->arrivals) * PHASE +
            (ticks > own->ticks ? ticks : own->ticks);
  return a;
}

/* Add the current fibre to *a*, of the same block, in which barriers in phases tell threads apart.
 * Many cells see the same threads in turn, so that what comes of one more is looked up. */
EMU_COLD static Access join_of_several(Access a) {
  const uint32_t warp = known_warp(me.warp);
  if (!several.size) several.push(Several{});
  uint32_t from = is_of_several(a) ? a.warp - SEVERAL : 0;
  if (!from) {
    Several alone = {};
    alone.stamp[known_warp(a.warp)] = a.stamp;
    alone.lanes[known_warp(a.warp)] = a.lanes;
    if (a.warp / launch.n_warps != own->index && !is_by_thread())
      return {now, MANY, a.lanes, a.flags};
    for (uint32_t i = several.size; i-- > 1 && i + 64 > several.size && !from;)
      if (!memcmp(&several.items[i], &alone, sizeof alone)) from = i;
    if (!from) from = several.size, several.push(alone);
  }
  uint32_t to = 0;
  for (uint32_t i = joined.size; i-- > 0 && i + 64 > joined.size && !to;) {
    const Joined &one = joined.items[i];
    if (one.from == from && one.warp == warp && one.lanes == me.lanes && one.stamp == now) to = one.to;
  }
  if (!to) {
    Several more = several.items[from];
    more.stamp[warp] = now;
    more.lanes[warp] |= me.lanes;
    to = several.size;
    several.push(more);
    joined.push({from, warp, me.lanes, now, to});
  }
  return {now, SEVERAL + to, 0, a.flags};
}

static EMU_HOT void join_access(Access &a) {
  if (__builtin_expect(counts_phases(), 0)) return (void)(a = join_in_cluster(a));
  if (__builtin_expect(known_through_phases != nullptr, 0) && a.stamp >= block_start &&
      a.warp != MANY)
    return (void)(a = join_of_several(a));
  if (a.warp == me.warp) a.lanes |= me.lanes;
  else a.warp = MANY;
  if (a.stamp >= block_start) a.stamp = now;
}
