/* The threads of a block: fibres, their stacks, and the order in which they run. */
#pragma once
#include "memory.h"

static const size_t STACK_BYTES = 256 << 10, GUARD_BYTES = 4096; /* most is never touched */

static Fibre fibres[MAX_CLUSTER * MAX_THREADS]; /* block after block */
static char **free_stacks;
static uint32_t n_free_stacks, n_stacks;
static const uint32_t MOST_GUARDS = 1 << 14; /* a process has room for some 65,000 mappings */
static uint64_t random_state;

static uint32_t random_below(uint32_t bound) { /* xorshift64* */
  random_state ^= random_state >> 12;
  random_state ^= random_state << 25;
  random_state ^= random_state >> 27;
  return (uint32_t)((random_state * 0x2545f4914f6cdd1du >> 32) * bound >> 32);
}

template <typename T> static void shuffle(T *items, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) items[i] = (T)i;
  for (uint32_t i = n; i > 1; --i) {
    const uint32_t j = random_below(i);
    const T item = items[i - 1];
    items[i - 1] = items[j];
    items[j] = item;
  }
}

static char *take_stack() {
  if (n_free_stacks) return free_stacks[--n_free_stacks];
  char *guard = (char *)stacks + n_stacks++ * (STACK_BYTES + GUARD_BYTES);
  if (n_stacks <= MOST_GUARDS)
    mprotect(guard, GUARD_BYTES, PROT_NONE); /* stacks grow down, into the guard */
  return guard + GUARD_BYTES;
}

static void become(Fibre *f) {
  forget_accesses();
  current = f;
  me = {own->index * launch.n_warps + f->index / 32, 1u << (f->index & 31), f->index & 31};
  if (counts_phases()) set_clock(*f);
  else if (is_by_thread()) barrier = own->last_barrier;
}

static void run_fibre(Fibre *f) {
  if (!f->stack) {
    f->stack = take_stack();
    f->context = emu_new_context(f->stack, STACK_BYTES);
  }
  become(f);
  outcome = ENDED;
  emu_switch(&scheduler, f->context);
  current = nullptr;
}

EMU_COLD static const char *what_waits(const Fibre &f) {
  static const char *const exchanges[] = {"__shfl_sync", "__shfl_up_sync", "__shfl_down_sync",
                                          "__shfl_xor_sync", "a vote", "__syncwarp"};
  static char text[160];
  if (f.state == AT_CLUSTER_BARRIER)
    snprintf(text, sizeof text, "waits at the barrier of the cluster of %s:%d", f.site.file,
             f.site.line);
  else if (f.state == AT_GRID_BARRIER)
    snprintf(text, sizeof text, "waits at the barrier of all blocks of %s:%d", f.site.file,
             f.site.line);
  else if (f.state == AT_BARRIER)
    snprintf(text, sizeof text, "waits at the barrier of %s:%d", f.site.file, f.site.line);
  else if (f.state == AT_PHASE)
    snprintf(text, sizeof text, "waits for the end of a phase at %s:%d", f.site.file, f.site.line);
  else if (f.state == AT_EXCHANGE)
    snprintf(text, sizeof text, "waits in %s with mask 0x%08x at %s:%d", exchanges[f.kind], f.mask,
             f.site.file, f.site.line);
  else
    snprintf(text, sizeof text, "has ended");
  return text;
}
