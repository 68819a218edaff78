/* The emulator's runtime: launches, blocks, and threads as fibres; linked with the kernels' object.
 *
 * The blocks of a launch run one after the other, in a shuffled order.  The threads of a block run
 * in a shuffled order too, each until it waits at a barrier or for other lanes of its warp.  Every
 * memory access is checked (access.h).  The first finding ends the run. */
#include <signal.h>

#include "instrumentation.h"
#include "intrinsics.h"
#include "session.h"

extern "C" void (*const emu_kernels[])(const uint64_t *) __attribute__((visibility("hidden")));

static uint16_t thread_order[MAX_THREADS];
static uint32_t *block_order; /* of the launch */
static uint32_t blocks_done, position;
static bool block_runs;
static Fibre *paused;

/* ---- blocks ------------------------------------------------------------------------------ */
/* Fill shared memory with NaNs: the variables that an earlier block has used. */
static void poison_shared() {
  for (uint32_t i = n_arrays; i < n_regions; ++i)
    memset((void *)regions[i].base, 0xff, regions[i].size);
  memset((void *)dynamic_shared.base, 0xff, dynamic_shared.size);
}

static void start_block() {
  block = block_order[blocks_done];
  start_block_order();
  poison_shared();
  shuffle(thread_order, launch.n_threads);
  for (uint32_t t = 0; t < launch.n_threads; ++t) {
    fibres[t].state = READY;
    fibres[t].thread = dim_of(t, launch.block);
    fibres[t].index = t;
  }
  threads_done = position = at_barrier = barrier_sum = 0;
  block_runs = true;
}

static Fibre *next_ready() {
  for (uint32_t i = 0; i < launch.n_threads; ++i) {
    Fibre *f = &fibres[thread_order[position]];
    if (++position == launch.n_threads) position = 0;
    if (f->state == READY) return f;
  }
  return nullptr;
}

EMU_COLD static void deadlock() {
  const Fibre *f = fibres;
  while (f->state != AT_EXCHANGE) ++f; /* a barrier alone never blocks: check_convergence */
  for (uint32_t rest = f->mask; rest; rest &= rest - 1) {
    const uint32_t lane = (uint32_t)__builtin_ctz(rest);
    const Fibre &other = fibres[(f->index & ~31u) + lane];
    if (other.state == AT_EXCHANGE && other.kind == f->kind && other.mask == f->mask) continue;
    char waits[160];
    snprintf(waits, sizeof waits, "%s", what_waits(*f));
    fail(f->kind < EMU_BALLOT ? WRONG_SHUFFLE : DEADLOCK, f->site,
         "deadlock: this thread %s; but lane %u, which the mask names, %s", waits, lane,
         what_waits(other));
    break;
  }
  set_thread(block, f->thread);
}

/* Run the current block; false if it did not end. */
static bool run_block() {
  while (threads_done < launch.n_threads) {
    Fibre *f = paused ? paused : next_ready();
    paused = nullptr;
    if (!f) {
      deadlock();
      return false;
    }
    run_fibre(f);
    if (outcome == PAUSED) paused = f;
    if (outcome != ENDED) return false;
    if (f->state == DONE) {
      free_stacks[n_free_stacks++] = f->stack;
      f->stack = nullptr;
    }
  }
  block_runs = false;
  return true;
}

/* ---- launches ---------------------------------------------------------------------------- */
static int32_t advance() {
  outcome = ENDED;
  while (blocks_done < launch.n_blocks) {
    if (now > 0xffff0000u) {
      fail(LIMIT, NO_SITE, "too many barriers in one launch to emulate");
      break;
    }
    if (!block_runs) start_block();
    if (!run_block()) break;
    ++blocks_done;
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
  const Dim g = launch.grid, b = launch.block;
  const uint64_t threads = (uint64_t)b.x * b.y * b.z, blocks = (uint64_t)g.x * g.y * g.z;
  if (threads < 1 || threads > MAX_THREADS || b.z > 64)
    fail(LIMIT, NO_SITE, "a block of %s threads; at most 1024, and 64 along z", text_of(b));
  else if (blocks < 1 || g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535)
    fail(LIMIT, NO_SITE, "a grid of %s blocks; at most 2147483647 along x, 65535 along "
         "y and z, and at least 1", text_of(g));
  else if (shared_bytes > MAX_SHARED_BYTES)
    fail(LIMIT, NO_SITE, "%llu bytes of dynamic shared memory; the limit is %u",
         (unsigned long long)shared_bytes, MAX_SHARED_BYTES);
  else if (blocks * ((threads + 31) / 32) >= MANY)
    fail(LIMIT, NO_SITE, "a grid of %s blocks is too large to emulate", text_of(g));
  return outcome != FOUND;
}

/* Start kernel number *kernel* with a grid and a block of these *sizes*. */
EMU_API int32_t emu_launch(uint32_t kernel, const uint32_t *sizes, uint64_t shared_bytes,
                           const uint64_t *arguments, uint32_t n_arguments) {
  if (n_arguments > MAX_VALUES) abort();
  memcpy(values, arguments, n_arguments * sizeof(uint64_t));
  launch.call = emu_kernels[kernel];
  launch.grid = {sizes[0], sizes[1], sizes[2]};
  launch.block = {sizes[3], sizes[4], sizes[5]};
  memset(&finding, 0, sizeof finding);
  outcome = ENDED;
  current = paused = nullptr;
  block_runs = false;
  if (!is_launchable(shared_bytes)) return FOUND;
  launch.n_blocks = launch.grid.x * launch.grid.y * launch.grid.z;
  launch.n_threads = launch.block.x * launch.block.y * launch.block.z;
  launch.n_warps = (launch.n_threads + 31) / 32;
  start_launch_order();
  ++launches;
  release_shared();
  drop_cells(dynamic_shared);
  if (!set_region(dynamic_shared, dynamic_shared_address(), shared_bytes, 4, WRITABLE | SHARED,
                  "dynamic shared memory"))
    fail(LIMIT, NO_SITE, "no memory is left to check shared memory");
  if (outcome == FOUND) return FOUND;
  block_order = (uint32_t *)launch_memory(launch.n_blocks * sizeof(uint32_t));
  shuffle(block_order, launch.n_blocks);
  blocks_done = 0;
  return emu_resume();
}
