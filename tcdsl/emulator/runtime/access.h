/* The check of a memory access: bounds, alignment, initialisation, order. */
#pragma once
#include <link.h>

#include "memory.h"

static const uint32_t MAX_VALUES = 4096;
static uint64_t values[MAX_VALUES]; /* the arguments of the running kernel */

/* Memory of this library that kernels may read: the segments that nobody can write. */
struct Range { uintptr_t base; uint64_t size; };
static const uint32_t MAX_CONSTANTS = 16;
static Range constants[MAX_CONSTANTS];
static uint32_t n_constants;

static int note_constants(struct dl_phdr_info *info, size_t, void *) {
  const uintptr_t here = (uintptr_t)values - info->dlpi_addr;
  bool is_here = false;
  for (int i = 0; i < info->dlpi_phnum; ++i)
    is_here |= info->dlpi_phdr[i].p_type == PT_LOAD &&
               here - info->dlpi_phdr[i].p_vaddr < info->dlpi_phdr[i].p_memsz;
  for (int i = 0; is_here && i < info->dlpi_phnum; ++i) {
    const auto &segment = info->dlpi_phdr[i];
    if (segment.p_type == PT_LOAD && !(segment.p_flags & PF_W) && n_constants < MAX_CONSTANTS)
      constants[n_constants++] = {info->dlpi_addr + segment.p_vaddr, segment.p_memsz};
  }
  return is_here;
}

static bool is_constant(uintptr_t a) {
  for (uint32_t i = 0; i < n_constants; ++i)
    if (a - constants[i].base < constants[i].size) return true;
  return a - (uintptr_t)values < sizeof values;
}

static const char *verb(bool writes, bool atomic) {
  return atomic ? "atomic access" : writes ? "write" : "read";
}

EMU_COLD static void outside(uintptr_t a, uint64_t size, bool writes, const Site &site) {
  if (!writes && is_constant(a)) return; /* tables of the device library */
  const Region *r = nearest(a);
  fail(OUT_OF_BOUNDS, site, "%s of %llu bytes out of bounds: %s", verb(writes, false),
       (unsigned long long)size, r ? place(*r, a) : "no memory of this launch is near the address");
}

EMU_COLD static const char *who(Access a) {
  static char text[160];
  if (a.warp >= SEVERAL) return "threads of several warps";
  const uint32_t first = a.warp % launch.n_warps * 32 + (uint32_t)__builtin_ctz(a.lanes);
  const uint32_t their_block = a.warp / launch.n_warps;
  const Dim thread = dim_of(first, launch.block), b = dim_of(their_block, launch.grid);
  const char *others = a.lanes & (a.lanes - 1) ? " (and others of its warp)" : "";
  if (their_block == own->index)
    snprintf(text, sizeof text, "thread %s%s", text_of(thread), others);
  else
    snprintf(text, sizeof text, "thread %s%s of block %s", text_of(thread), others, text_of(b));
  return text;
}

EMU_COLD static const char *why_unordered(Access other) {
  if (other.stamp < block_start || (counts_phases() && other.stamp < cluster_start))
    return "blocks may run at the same time";
  if (is_by_thread() && (other.warp >= SEVERAL || rank_of(other.warp) != own->rank))
    return "no barrier of the cluster lies between them, nor a phase";
  if (counts_phases() && (other.warp == MANY || rank_of(other.warp) != own->rank))
    return "no barrier of the cluster lies between them";
  return "no barrier lies between them";
}

EMU_COLD static void race(const Region &r, uintptr_t a, Access other, bool other_writes,
                          bool writes, bool atomic, const Site &site) {
  fail(RACE, site, "data race at %s: this %s and the %s by %s are not ordered: %s", place(r, a),
       verb(writes, atomic), verb(other_writes, other.flags & ATOMIC), who(other),
       why_unordered(other));
}

EMU_COLD static void in_flight(const Region &r, uintptr_t a, Access copy, bool writes,
                               const Site &site) {
  fail(RACE, site, "data race at %s: this %s and the asynchronous copy by %s are not ordered: no "
       "tc_copy_wait lies between them", place(r, a), verb(writes, false), who(copy));
}

/* An access from another block of the cluster, which must have started, and not have ended. */
EMU_COLD static void check_from_outside(Region &r, uintptr_t a, bool writes, const Site &site) {
  const Block &other = blocks[r.rank];
  r.flags |= FROM_OUTSIDE;
  if (current->phases == 0)
    fail(RACE, site, "data race at %s: this %s and the start of that block are not ordered: no "
         "barrier of the cluster lies between them", place(r, a), verb(writes, false));
  if (other.threads_done == launch.n_threads)
    fail(RACE, site, "data race at %s: this %s and the end of that block are not ordered: no "
         "barrier of the cluster lies between them", place(r, a), verb(writes, false));
}

EMU_COLD static void unwritten(const Region &r, uintptr_t a, uint32_t flags, const Site &site) {
  if (flags & INVALID)
    return fail(OUT_OF_BOUNDS, site, "access between the elements of an array: %s", place(r, a));
  fail(UNINITIALISED, site, "read of memory that was never written%s: %s",
       r.flags & SHARED ? " by this block" : "", place(r, a));
}

/* What the last access of a region that writes, or does not, has made of a cell: the same of one that
 * was alike.  Many cells are, for one copy filled them and the same threads have read them; what a fibre makes
 * of them depends on the region, the cell, the time and what it knows. */
struct Touch {
  const Region *region;
  Cell before, after;
  uint32_t now, n_learnt;
};
static const uint32_t N_TOUCHES = 8;
static Touch latest_touch[2][N_TOUCHES]; /* by WRITES, and by region as far as there is room */

static EMU_HOT bool are_alike(const Cell &a, const Cell &b) {
  uint64_t x[sizeof(Cell) / 8], y[sizeof(Cell) / 8];
  memcpy(x, &a, sizeof x);
  memcpy(y, &b, sizeof y);
  return !((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]));
}

template <bool WRITES, bool ATOMICALLY>
static EMU_HOT void touch(Region &r, Cell &cell, uintptr_t a, const Site &site) {
  Access &write = cell.write, &read = cell.read;
  if (r.flags & SHARED) {
    if (write.stamp <= block_start && read.stamp <= block_start) cell = Cell{};
    if (__builtin_expect(r.flags & IN_CLUSTER && r.rank != own->rank, 0))
      check_from_outside(r, a, WRITES, site);
  }
  if (__builtin_expect(write.flags & (INVALID | IN_FLIGHT), 0)) {
    if (write.flags & IN_FLIGHT) return in_flight(r, a, write, WRITES, site);
    return unwritten(r, a, write.flags, site);
  }
  const bool reads = !WRITES || ATOMICALLY;
  if (reads && __builtin_expect(!(write.flags & WRITTEN) && !(r.flags & WRITTEN_BEFORE), 0))
    return unwritten(r, a, write.flags, site);
  const bool written_before_me = happened_before(write);
  if (__builtin_expect(!written_before_me, 0) && !(ATOMICALLY && write.flags & ATOMIC))
    return race(r, a, write, true, WRITES, ATOMICALLY, site);
  if (!WRITES) {
    if (happened_before(read)) set_access(read, 0);
    else join_access(read);
    return;
  }
  if (__builtin_expect(!happened_before(read), 0)) {
    Access others = read;
    if (others.warp == me.warp && others.lanes != me.lanes) others.lanes &= ~me.lanes;
    return race(r, a, others, false, true, ATOMICALLY, site);
  }
  const uint32_t flags = ATOMICALLY ? WRITTEN | ATOMIC : uint32_t(WRITTEN);
  if (ATOMICALLY && !written_before_me) join_access(write);
  else set_access(write, flags);
  read = Access{};
}

template <bool WRITES, bool ATOMICALLY>
static EMU_HOT void touch_as_before(Region &r, Cell &cell, uintptr_t a, const Site &site) {
  if (ATOMICALLY || (r.flags & IN_CLUSTER && r.rank != own->rank))
    return touch<WRITES, ATOMICALLY>(r, cell, a, site);
  Touch &last = latest_touch[WRITES][(&r - regions) % N_TOUCHES];
  if (last.region == &r && last.now == now && last.n_learnt == n_learnt && are_alike(last.before, cell)) {
    cell = last.after;
    return;
  }
  Cell next = cell; /* in registers: what was just stored in pieces is slow to load as a whole */
  touch<WRITES, ATOMICALLY>(r, next, a, site);
  last = {&r, cell, next, now, n_learnt};
  cell = next;
}

template <bool WRITES, bool ATOMICALLY>
static EMU_HOT void check_access(uintptr_t a, uint64_t size, uint64_t alignment, const Site &site) {
  if (a - stacks < stacks_size) return;
  Region *r = region_at(a);
  if (__builtin_expect(!r || a - r->base >= r->size || size > r->size - (a - r->base), 0))
    return outside(a, size, WRITES, site);
  if (__builtin_expect(a & (alignment - 1), 0))
    return fail(MISALIGNED, site, "misaligned %s of %llu bytes: %s", verb(WRITES, ATOMICALLY),
                (unsigned long long)size, place(*r, a));
  if (--budget < 0 && current) leave(PAUSED);
  if (WRITES && __builtin_expect(!(r->flags & WRITABLE), 0))
    return fail(READ_ONLY, site, "%s to read-only memory: %s", verb(WRITES, ATOMICALLY),
                place(*r, a));
  if (!r->cells) return;
  const uint64_t offset = a - r->base;
  if (__builtin_expect((offset | size) & ((1u << r->shift) - 1), 0)) split_cells(*r);
  Cell *cell = r->cells + (offset >> r->shift), *end = cell + (size >> r->shift);
  for (; cell < end; ++cell, a += 1u << r->shift)
    touch_as_before<WRITES, ATOMICALLY>(*r, *cell, a, site);
}
