/* What else kernels call: atomics, fences, shared variables, indices. */
#pragma once
#include "access.h"
#include "collectives.h"

/* Of one H100 or H200; no GPU of today has more. */
static const uint32_t MAX_SHARED_BYTES = 227 << 10, MAX_STATIC_SHARED_BYTES = 48 << 10;

static uint64_t launches; /* counts, for the tags of shared variables */

EMU_LOCAL uint64_t emu_atomic_load(const void *p, int size, const char *file, int line) {
#ifndef EMU_ADDRESS_SANITIZER
  if ((uintptr_t)p - stacks < stacks_size) /* a GPU's instruction faults there */
    fail(OUT_OF_BOUNDS, {file, line, EMU_CALLER}, "atomic access of a thread's own variable");
  check_access<true, true>((uintptr_t)p, (uint64_t)size, (uint64_t)size, {file, line, EMU_CALLER});
  order_by_atomic(p);
#endif
  uint64_t bits = 0;
  memcpy(&bits, p, (size_t)size);
  return bits;
}

EMU_LOCAL void emu_atomic_store(void *p, int size, uint64_t bits) {
  memcpy(p, &bits, (size_t)size);
}

EMU_LOCAL void emu_fence(int scope) {
  if (scope > 0) order_by_fence();
}

EMU_LOCAL void emu_load_read_only(const void *p, int size, const char *file, int line) {
#ifndef EMU_ADDRESS_SANITIZER
  const uintptr_t a = (uintptr_t)p;
  check_access<false, false>(a, (uint64_t)size, (uint64_t)size, {file, line, EMU_CALLER});
  const Region *r = region_at(a);
  if (!r || !r->cells) return;
  const uint64_t offset = a - r->base;
  for (uint64_t i = offset >> r->shift; i < (offset + (uint64_t)size) >> r->shift; ++i)
    if (r->flags & SHARED || r->cells[i].write.stamp >= launch_start)
      fail(RACE, {file, line, EMU_CALLER},
           "read through the read-only path of memory that this launch writes: %s", place(*r, a));
#endif
}

EMU_LOCAL void emu_trap(const char *file, int line) {
  fail(CRASH, {file, line, EMU_CALLER}, "the kernel called __trap");
}

EMU_LOCAL void *emu_dynamic_shared() {
  return (void *)(dynamic_shared_address() + distance_of(own->rank));
}

/* A __shared__ variable: every declaration, in every instance of a template, has a tag; the base is
 * that of rank 0. */
struct Tag { uint64_t launch; uintptr_t base; };

static void check_shared_limits(uint64_t more) {
  uint64_t size = more;
  for (uint32_t i = n_arrays; i < n_regions; ++i)
    if (regions[i].rank == 0) size += regions[i].size;
  if (size > MAX_STATIC_SHARED_BYTES)
    fail(LIMIT, NO_SITE, "%llu bytes of static shared memory; the limit is %u",
         (unsigned long long)size, MAX_STATIC_SHARED_BYTES);
  if (size + dynamic_shared->size > MAX_SHARED_BYTES)
    fail(LIMIT, NO_SITE, "%llu bytes of shared memory in a block; the limit is %u",
         (unsigned long long)(size + dynamic_shared->size), MAX_SHARED_BYTES);
}

EMU_LOCAL void *emu_shared_variable(Tag *tag, uint64_t size, uint32_t alignment, uint32_t element,
                                    const char *name) {
  if (tag->launch != launches) {
    check_shared_limits(size);
    const Region *r = allocate_shared(size, alignment, element, name);
    if (!r) fail(LIMIT, NO_SITE, "too many shared variables to emulate");
    for (uint32_t rank = 0; rank < launch.cluster; ++rank)
      memset((void *)(r->base + distance_of(rank)), 0xff, size);
    *tag = {launches, r->base};
  }
  return (void *)(tag->base + distance_of(own->rank));
}

EMU_LOCAL unsigned emu_thread_x() { return current->thread.x; }
EMU_LOCAL unsigned emu_thread_y() { return current->thread.y; }
EMU_LOCAL unsigned emu_thread_z() { return current->thread.z; }
EMU_LOCAL unsigned emu_rank() { return own->rank; }
EMU_LOCAL unsigned emu_block_x() { return dim_of(own->index, launch.grid).x; }
EMU_LOCAL unsigned emu_block_y() { return dim_of(own->index, launch.grid).y; }
EMU_LOCAL unsigned emu_block_z() { return dim_of(own->index, launch.grid).z; }
EMU_LOCAL unsigned emu_threads_x() { return launch.block.x; }
EMU_LOCAL unsigned emu_threads_y() { return launch.block.y; }
EMU_LOCAL unsigned emu_threads_z() { return launch.block.z; }
EMU_LOCAL unsigned emu_blocks_x() { return launch.grid.x; }
EMU_LOCAL unsigned emu_blocks_y() { return launch.grid.y; }
EMU_LOCAL unsigned emu_blocks_z() { return launch.grid.z; }
