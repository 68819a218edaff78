/* What threads do together: barriers of the block, and exchanges between lanes of a warp.
 *
 * Nobody is woken for nothing: the last one to come does the work for all, and makes them ready. */
#pragma once
#include "async.h"
#include "cluster.h"
#include "mbarriers.h"
#include "products.h"

/* As in emulate.h. */
enum { EMU_INDEX, EMU_UP, EMU_DOWN, EMU_XOR, EMU_BALLOT, EMU_SYNC };
enum { EMU_PLAIN, EMU_COUNT, EMU_AND, EMU_OR };

/* ---- barriers ---------------------------------------------------------------------------- */
static bool is_same_barrier(const Fibre &a, const Fibre &b) {
  return a.kind == b.kind && a.site.line == b.site.line && !strcmp(a.site.file, b.site.file);
}

EMU_COLD static void check_convergence(const Fibre *f) {
  for (uint32_t t = 0; t < launch.n_threads; ++t)
    if (own->fibres[t].state == DONE)
      fail(DIVERGENT_BARRIER, f->site,
           "divergent barrier: this thread %s, and thread %s has ended", what_waits(*f),
           text_of(own->fibres[t].thread));
  fail(DIVERGENT_BARRIER, f->site,
       "divergent barrier: this thread is at the barrier of %s:%d, and thread %s %s", f->site.file,
       f->site.line, text_of(own->first_at_barrier->thread), what_waits(*own->first_at_barrier));
}

EMU_LOCAL int emu_barrier(int kind, int predicate, const char *file, int line) {
  Fibre *f = current;
  f->state = AT_BARRIER;
  f->kind = (uint8_t)kind;
  f->site = {file, line, EMU_CALLER};
  if (own->at_barrier++ == 0) own->first_at_barrier = f;
  own->barrier_sum += predicate != 0;
  if (own->threads_done || !is_same_barrier(*f, *own->first_at_barrier)) check_convergence(f);
  if (own->at_barrier < launch.n_threads) {
    leave(ENDED);
  } else {
    for (uint32_t t = 0; t < launch.n_threads; ++t) own->fibres[t].state = READY;
    own->barrier_result = own->barrier_sum;
    own->at_barrier = own->barrier_sum = 0;
    order_by_barrier();
  }
  if (kind == EMU_AND) return own->barrier_result == launch.n_threads;
  return kind == EMU_OR ? own->barrier_result != 0 : (int)own->barrier_result;
}

/* ---- lanes of a warp --------------------------------------------------------------------- */
/* The lane whose value *f* gets; as PTX's shfl, a lane beyond the segment means the own one. */
static uint32_t source_lane(const Fibre &f) {
  const uint32_t lane = f.index & 31, width = (uint32_t)f.width, first = lane & ~(width - 1);
  const uint32_t n = (uint32_t)f.operand;
  switch (f.kind) {
    case EMU_INDEX: return first | (n & (width - 1));
    case EMU_UP: return n <= lane - first ? lane - n : lane;
    case EMU_DOWN: return n < first + width - lane ? lane + n : lane;
    default: return (lane ^ n) < first + width ? lane ^ n : lane;
  }
}

static void exchange(uint32_t first, uint32_t lanes, int kind) {
  uint64_t values[32], votes = 0;
  for (uint32_t rest = lanes; rest; rest &= rest - 1) {
    const uint32_t lane = (uint32_t)__builtin_ctz(rest);
    values[lane] = own->fibres[first + lane].bits;
    votes |= (values[lane] & 1) << lane;
  }
  if (kind == EMU_SYNC) order_lanes(first, lanes);
  for (uint32_t rest = lanes; rest; rest &= rest - 1) {
    Fibre &f = own->fibres[first + (uint32_t)__builtin_ctz(rest)];
    f.state = READY;
    f.bits = votes;
    if (kind >= EMU_BALLOT) continue;
    const uint32_t source = source_lane(f);
    /* Undefined where the source does not take part; nothing says that the value will be used. */
    f.bits = lanes >> source & 1 ? values[source] : ~(uint64_t)0;
  }
}

/* If all lanes that *f*'s mask names have come, do what they came for. */
static bool complete_exchange(Fibre *f) {
  const uint32_t first = f->index & ~31u;
  uint32_t lanes = 0;
  for (uint32_t rest = f->mask; rest; rest &= rest - 1) {
    const uint32_t lane = (uint32_t)__builtin_ctz(rest);
    if (first + lane >= launch.n_threads) break; /* the last warp may be partly empty */
    const Fibre &other = own->fibres[first + lane];
    if (other.state == DONE) {
      if (f->kind < EMU_BALLOT)
        fail(WRONG_SHUFFLE, f->site,
             "wrong shuffle: mask 0x%08x names lane %u, which has ended", f->mask, lane);
      continue; /* votes and __syncwarp do not wait for it */
    }
    if (other.state != AT_EXCHANGE || other.kind != f->kind || other.mask != f->mask) return false;
    lanes |= 1u << lane;
  }
  exchange(first, lanes, f->kind);
  return true;
}

EMU_LOCAL uint64_t emu_exchange_lanes(int kind, unsigned mask, uint64_t bits, int operand,
                                      int width, const char *file, int line) {
  Fibre *f = current;
  f->kind = (uint8_t)kind;
  f->site = {file, line, EMU_CALLER};
  f->mask = mask;
  f->bits = bits;
  f->operand = operand;
  f->width = width;
  if (!(mask >> (f->index & 31) & 1))
    fail(WRONG_SHUFFLE, f->site,
         "wrong shuffle: mask 0x%08x does not name the calling lane, %u", mask, f->index & 31);
  if (width < 1 || width > 32 || width & (width - 1))
    fail(WRONG_SHUFFLE, f->site, "wrong shuffle: its width is %d", width);
  f->state = AT_EXCHANGE;
  if (!complete_exchange(f)) leave(ENDED);
  return f->bits;
}

/* The calling lane alone: CUDA promises no more, whatever the other lanes do. */
EMU_LOCAL unsigned emu_active_mask() { return me.lanes; }

/* ---- the end of a thread ----------------------------------------------------------------- */
extern "C" __attribute__((visibility("hidden"))) void emu_fibre_main() {
  launch.call(values);
  Fibre *ended = current;
  check_copies_are_done();
  check_products_are_done();
  ended->state = DONE;
  ++own->threads_done;
  if (own->at_barrier)
    fail(DIVERGENT_BARRIER, own->first_at_barrier->site,
         "divergent barrier: this thread ended, and thread %s %s",
         text_of(own->first_at_barrier->thread), what_waits(*own->first_at_barrier));
  if (is_cluster()) end_thread_of_cluster();
  const uint32_t first = ended->index & ~31u;
  for (uint32_t t = first; t < first + 32 && t < launch.n_threads; ++t)
    if (own->fibres[t].state == AT_EXCHANGE && own->fibres[t].mask >> (ended->index & 31) & 1) {
      become(&own->fibres[t]);
      complete_exchange(&own->fibres[t]);
    }
  current = ended;
  leave(ENDED);
}
