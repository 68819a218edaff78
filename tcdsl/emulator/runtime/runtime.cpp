/* The emulator's runtime: launches, blocks, and threads as fibres; linked with the kernels' object.
 *
 * The blocks of a launch run one after the other, in a shuffled order, or in that of their numbers
 * where some wait for signals of others.  The threads of a block run
 * in a shuffled order too, each until it waits at a barrier or for other lanes of its warp.
 * Clusters run one after the other likewise, the blocks of one in turns, each until all its threads
 * wait.  The blocks of a cooperative launch run until each waits for all others (grid.h).  Every
 * memory access is checked (access.h).  The first finding ends the run. */
#include <signal.h>

#include "grid.h"
#include "instrumentation.h"
#include "intrinsics.h"
#include "session.h"

extern "C" void (*const emu_kernels[])(const uint64_t *) __attribute__((visibility("hidden")));

static uint16_t thread_orders[MAX_CLUSTER][MAX_THREADS];
static uint32_t *cluster_order; /* of the launch; a cluster is a block, or some */
static uint32_t clusters_done;
static bool cluster_runs;
static uint8_t turns[MAX_CLUSTER]; /* of the blocks of the cluster */
static uint32_t turn;
static bool has_run; /* whether a fibre has, since all blocks had their turns */
static Fibre *paused;

/* ---- blocks ------------------------------------------------------------------------------ */
/* Fill shared memory with NaNs: the variables that an earlier block has used. */
static void poison_shared() {
  for (uint32_t i = n_arrays; i < n_regions; ++i)
    memset((void *)regions[i].base, 0xff, regions[i].size);
  for (uint32_t rank = 0; rank < launch.cluster; ++rank)
    memset((void *)dynamic_shared[rank].base, 0xff, dynamic_shared[rank].size);
}

static void start_block(Block &b, uint32_t index) {
  b.index = index;
  b.order = thread_orders[b.rank];
  shuffle(b.order, launch.n_threads);
  for (uint32_t t = 0; t < launch.n_threads; ++t) {
    Fibre &f = b.fibres[t];
    f.state = READY;
    f.thread = dim_of(t, launch.block);
    f.index = t;
    f.arrivals = f.waits = f.phases = 0;
    f.copies = nullptr;
    f.products = nullptr;
    f.phase = nullptr;
    f.waited = nullptr;
    f.groups = 0;
  }
  b.position = b.threads_done = b.at_barrier = b.barrier_sum = b.at_grid_barrier = 0;
  b.ticks = b.ordered = 0;
  b.last_barrier = block_start;
  b.known_fence_barrier = 0;
  memset(b.published, 0, sizeof b.published);
}

static void start_cluster_or_block() {
  const uint32_t cluster = cluster_order[clusters_done];
  if (counts_phases()) start_cluster_order();
  else start_block_order();
  all_phases = nullptr;
  start_cluster();
  poison_shared();
  for (uint32_t rank = 0; rank < launch.cluster; ++rank)
    start_block(blocks[rank], block_of(cluster, rank));
  if (grid_phase) resume_block(*blocks);
  shuffle(turns, launch.cluster);
  own = &blocks[turns[turn = 0]];
  has_run = false;
  cluster_runs = true;
}

static Fibre *next_ready() {
  for (uint32_t i = 0; i < launch.n_threads; ++i) {
    Fibre *f = &own->fibres[own->order[own->position]];
    if (++own->position == launch.n_threads) own->position = 0;
    if (f->state == READY) return f;
  }
  return nullptr;
}

EMU_COLD static void deadlock() {
  const Block *b;
  if (const Fibre *f = find_in_cluster(&b, [](const Fibre &g) { return g.state == AT_PHASE; })) {
    fail(DEADLOCK, f->site, "deadlock: this thread waits for a phase of parity %u; %u arrivals and "
         "%lld bytes are missing", f->mask, f->phase->pending, (long long)f->phase->bytes);
    return set_thread(b->index, f->thread);
  }
  if (const Fibre *f = find_in_cluster(&b, [](const Fibre &g) { return g.state == AT_GRID_BARRIER; })) {
    fail(DEADLOCK, f->site, "deadlock: this thread waits at the barrier of all blocks, and others of its "
         "block do not come there");
    return set_thread(b->index, f->thread);
  }
  const Fibre *f = find_in_cluster(&b, [](const Fibre &g) { return g.state == AT_EXCHANGE; });
  if (!f) return cluster_deadlock(); /* a block's barrier never blocks: check_convergence */
  own = &blocks[b->rank];
  for (uint32_t rest = f->mask; rest; rest &= rest - 1) {
    const uint32_t lane = (uint32_t)__builtin_ctz(rest);
    const Fibre &other = own->fibres[(f->index & ~31u) + lane];
    if (other.state == AT_EXCHANGE && other.kind == f->kind && other.mask == f->mask) continue;
    char waits[160];
    snprintf(waits, sizeof waits, "%s", what_waits(*f));
    fail(f->kind < EMU_BALLOT ? WRONG_SHUFFLE : DEADLOCK, f->site,
         "deadlock: this thread %s; but lane %u, which the mask names, %s", waits, lane,
         what_waits(other));
    break;
  }
  set_thread(own->index, f->thread);
}

/* Run the current block until all its threads have ended or wait; false on a pause or a finding. */
static bool run_block() {
  while (own->threads_done < launch.n_threads) {
    Fibre *f = paused ? paused : next_ready();
    paused = nullptr;
    if (!f && deliver_somewhere()) { /* to another block of the cluster, it may be */
      has_run = true;
      continue;
    }
    if (!f) return true;
    has_run = true;
    run_fibre(f);
    if (outcome == PAUSED) paused = f;
    if (outcome != ENDED) return false;
    if (f->state == DONE) {
      free_stacks[n_free_stacks++] = f->stack;
      f->stack = nullptr;
    }
  }
  return true;
}

static bool has_ended() {
  for (uint32_t rank = 0; rank < launch.cluster; ++rank)
    if (blocks[rank].threads_done < launch.n_threads) return false;
  return true;
}

/* Run the current cluster; false if it did not end. */
static bool run_cluster() {
  for (;;) {
    if (!run_block()) return false;
    if (has_ended()) break;
    if (is_at_grid_barrier()) {
      park_block();
      cluster_runs = false;
      return true;
    }
    if (++turn == launch.cluster) {
      if (!has_run) {
        deadlock();
        return false;
      }
      has_run = turn = 0;
    }
    own = &blocks[turns[turn]];
  }
  check_boxes_have_arrived();
  check_boxes_were_read();
  if (outcome == FOUND) return false;
  if (counts_phases()) end_cluster_order(phases_done);
  cluster_runs = false;
  return true;
}

/* ---- launches ---------------------------------------------------------------------------- */
static int32_t advance() {
  outcome = ENDED;
  while (clusters_done < n_clusters()) {
    if (now > 0xffff0000u) {
      fail(LIMIT, NO_SITE, "too many barriers in one launch to emulate");
      break;
    }
    if (!cluster_runs) start_cluster_or_block();
    if (!run_cluster()) break;
    if (++clusters_done < launch.n_blocks || !n_parked) continue;
    if (!end_grid_phase()) break;
    shuffle(cluster_order, launch.n_blocks);
    clusters_done = 0;
  }
  return outcome;
}

static struct sigaction old_actions[3];
static stack_t old_signal_stack;
static const int SIGNALS[3] = {SIGSEGV, SIGBUS, SIGFPE};

/* A crash inside a fibre is a finding; any other is left to whom it was left before. */
static void on_signal(int number, siginfo_t *info, void *) {
  if (!current) {
    for (int i = 0; i < 3; ++i) sigaction(SIGNALS[i], &old_actions[i], nullptr);
    return; /* and it happens again */
  }
  const uintptr_t a = (uintptr_t)info->si_addr;
  if (number != SIGFPE && a - stacks < stacks_size)
    fail(CRASH, NO_SITE, "the local variables of a thread take more than %zu KB",
         STACK_BYTES >> 10);
  fail(CRASH, NO_SITE, "the kernel crashed with signal %d at address %p", number, info->si_addr);
}

static void catch_signals() {
  static char stack[32 << 10] __attribute__((aligned(16)));
  stack_t ours = {};
  ours.ss_sp = stack;
  ours.ss_size = sizeof stack;
  sigaltstack(&ours, &old_signal_stack);
  struct sigaction action = {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER; /* the handler never returns */
  for (int i = 0; i < 3; ++i) sigaction(SIGNALS[i], &action, &old_actions[i]);
}

static void release_signals() {
  for (int i = 0; i < 3; ++i) sigaction(SIGNALS[i], &old_actions[i], nullptr);
  sigaltstack(&old_signal_stack, nullptr);
}

/* Go on with the launch; PAUSED now and then, so that the caller can be interrupted. */
EMU_API int32_t emu_resume() {
  budget = PAUSE_EVERY;
  catch_signals();
  const int32_t result = advance();
  release_signals();
  if (result != PAUSED) end_launch_order();
  return result;
}

static bool is_launchable(uint64_t shared_bytes) {
  const Dim g = launch.grid, b = launch.block, c = launch.cluster_dims;
  const uint64_t threads = (uint64_t)b.x * b.y * b.z, blocks = (uint64_t)g.x * g.y * g.z;
  if (threads < 1 || threads > MAX_THREADS || b.z > 64)
    fail(LIMIT, NO_SITE, "a block of %s threads; at most 1024, and 64 along z", text_of(b));
  else if (blocks < 1 || g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535)
    fail(LIMIT, NO_SITE, "a grid of %s blocks; at most 2147483647 along x, 65535 along "
         "y and z, and at least 1", text_of(g));
  else if (shared_bytes > MAX_SHARED_BYTES)
    fail(LIMIT, NO_SITE, "%llu bytes of dynamic shared memory; the limit is %u",
         (unsigned long long)shared_bytes, MAX_SHARED_BYTES);
  else if (launch.cluster < 1 || launch.cluster > most_ranks || g.x % c.x || g.y % c.y || g.z % c.z ||
           (counts_phases() && launch.cluster != g.z))
    fail(LIMIT, NO_SITE, "clusters of %s blocks, at most %u; not whole ones, or without boxes not all "
         "along z, of a grid of %s", text_of(c), MAX_CLUSTER, text_of(g));
  else if (is_by_thread() && launch.cluster * ((threads + 31) / 32) > MOST_WARPS)
    fail(LIMIT, NO_SITE, "clusters of more than %u threads that copy boxes", MOST_KNOWN);
  else if (blocks * ((threads + 31) / 32) >= MANY_OF_ONE)
    fail(LIMIT, NO_SITE, "a grid of %s blocks is too large to emulate", text_of(g));
  return outcome != FOUND;
}

/* Make the dynamic shared memory of every block that runs at the same time; false on a finding. */
static bool make_dynamic_shared(uint64_t bytes) {
  for (uint32_t rank = 0; rank < most_ranks; ++rank) {
    drop_cells(dynamic_shared[rank]);
    dynamic_shared[rank].size = 0;
  }
  for (uint32_t rank = 0; rank < launch.cluster; ++rank) {
    if (!set_region(dynamic_shared[rank], dynamic_shared_address() + distance_of(rank), bytes, 4,
                    shared_flags(), "dynamic shared memory"))
      fail(LIMIT, NO_SITE, "no memory is left to check shared memory");
    dynamic_shared[rank].rank = rank;
  }
  return outcome != FOUND;
}

/* Start kernel number *kernel*; *sizes* are those of the grid, of a block, and of a cluster, and
 * whether the launch is cooperative, has boxes, and blocks that wait for signals. */
EMU_API int32_t emu_launch(uint32_t kernel, const uint32_t *sizes, uint64_t shared_bytes,
                           const uint64_t *arguments, uint32_t n_arguments) {
  if (n_arguments > MAX_VALUES) abort();
  memcpy(values, arguments, n_arguments * sizeof(uint64_t));
  launch.call = emu_kernels[kernel];
  launch.grid = {sizes[0], sizes[1], sizes[2]};
  launch.block = {sizes[3], sizes[4], sizes[5]};
  launch.cluster_dims = {sizes[6], sizes[7], sizes[8]};
  launch.cluster = sizes[6] * sizes[7] * sizes[8];
  launch.is_cooperative = sizes[9];
  launch.has_boxes = sizes[10];
  launch.is_in_order = sizes[11];
  memset(&finding, 0, sizeof finding);
  outcome = ENDED;
  current = paused = nullptr;
  own = blocks;
  spare_copies = nullptr;
  spare_products = nullptr;
  cluster_runs = false;
  if (!is_launchable(shared_bytes)) return FOUND;
  launch.n_blocks = launch.grid.x * launch.grid.y * launch.grid.z;
  launch.n_threads = launch.block.x * launch.block.y * launch.block.z;
  launch.n_warps = (launch.n_threads + 31) / 32;
  start_launch_order();
  ++launches;
  release_shared();
  if (!make_dynamic_shared(shared_bytes)) return FOUND;
  cluster_order = (uint32_t *)launch_memory(n_clusters() * sizeof(uint32_t));
  shuffle(cluster_order, n_clusters());
  for (uint32_t i = 0; launch.is_in_order && i < n_clusters(); ++i) cluster_order[i] = i;
  clusters_done = 0;
  start_grid();
  return emu_resume();
}
