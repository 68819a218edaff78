/* The memory of a run, for the caller: arrays are placed in the arena, launches follow. */
#pragma once
#include "access.h"
#include "fibres.h"

/* One piece of address space for a run: the arena, the tables, the stacks. */
static char *memory;
static uint64_t memory_size;

static bool reserve_memory(uint64_t arena_bytes, uint64_t residents) {
  const uint64_t of_cluster = most_ranks * MAX_THREADS;
  const uint64_t most_threads = residents > of_cluster ? residents : of_cluster;
  const uint64_t chunk_table = arena_bytes / CHUNK * sizeof(uint16_t);
  const uint64_t static_table = distance_of(most_ranks) / 16 * sizeof(uint16_t);
  const uint64_t knowledge_size = of_cluster * sizeof(Knowledge);
  const uint64_t free_size = most_threads * sizeof(char *);
  stacks_size = most_threads * (STACK_BYTES + GUARD_BYTES);
  memory_size = arena_bytes + stacks_size + chunk_table + static_table + knowledge_size + free_size;
  memory = (char *)reserve(memory_size, PROT_NONE);
  if (!memory) return false;
  char *const tables = memory + arena_bytes;
  arena = (uintptr_t)memory;
  arena_size = arena_bytes;
  stacks = (uintptr_t)tables;
  chunk_regions = (uint16_t *)(tables + stacks_size);
  static_regions = (uint16_t *)(tables + stacks_size + chunk_table);
  Knowledge *const knowledge = (Knowledge *)(tables + stacks_size + chunk_table + static_table);
  free_stacks = (char **)((char *)knowledge + knowledge_size);
  for (uint32_t rank = 0; rank < most_ranks; ++rank) {
    blocks[rank].rank = rank;
    blocks[rank].knowledge = knowledge + rank * MAX_THREADS;
    blocks[rank].fibres = fibres + rank * MAX_THREADS;
  }
  const int both = PROT_READ | PROT_WRITE;
  return !mprotect(tables, memory_size - arena_bytes, both) &&
         !mprotect(memory + CHUNK, distance_of(most_ranks) - CHUNK, both);
}

/* Forget a run, and give its memory back. */
EMU_API void emu_end() {
  release_shared();
  while (n_regions > 0) drop_cells(regions[--n_regions]);
  for (uint32_t rank = 0; rank < most_ranks; ++rank) drop_cells(dynamic_shared[rank]);
  n_arrays = n_stacks = n_free_stacks = 0;
  for (uint32_t t = 0; t < most_ranks * MAX_THREADS; ++t) fibres[t].stack = nullptr;
  end_launch_order();
  if (memory) munmap(memory, memory_size);
  memory = nullptr;
  arena = arena_size = stacks_size = 0;
}

/* Begin a run with *n_arrays_to_come* arrays of *bytes* in all, clusters of up to *ranks* blocks,
 * and up to *residents* threads of a launch that is cooperative; false if there is no memory. */
EMU_API int32_t emu_begin(uint64_t seed, uint64_t n_arrays_to_come, uint64_t bytes,
                          uint32_t ranks, uint64_t residents) {
  emu_end();
  most_ranks = ranks < 1 ? 1 : ranks > MAX_CLUSTER ? MAX_CLUSTER : ranks;
  arena_used = distance_of(most_ranks);
  const uint64_t arrays = n_arrays_to_come * room_for(0) + (2 * bytes / CHUNK + 1) * CHUNK;
  if (!reserve_memory(arena_used + arrays, residents)) return 0;
  for (uint32_t rank = 0; rank < most_ranks; ++rank) {
    uint16_t *const of_block = chunk_regions + rank * BLOCK_CHUNKS;
    for (uint64_t chunk = DYNAMIC_CHUNK; chunk < STATIC_CHUNK - 1; ++chunk)
      of_block[chunk] = (uint16_t)(MAX_REGIONS + 1 + rank);
    for (uint64_t chunk = STATIC_CHUNK; chunk < STATIC_CHUNK + N_STATIC_CHUNKS; ++chunk)
      of_block[chunk] = IN_STATIC;
  }
  if (!n_constants) dl_iterate_phdr(note_constants, nullptr);
  random_state = seed * 0x9e3779b97f4a7c15u + 0x853c49e6748fea9bu;
  if (!random_state) random_state = 1;
  now = 1;
  return 1;
}

/* Memory of the run; 0 if there is none left. */
EMU_API uint64_t emu_allocate(uint64_t size, uint32_t alignment, uint32_t element, uint32_t flags,
                              const char *name) {
  const Region *r = allocate(size, alignment, element, flags, name);
  n_arrays = n_regions;
  return r ? r->base : 0;
}

/* Name the scratch arrays that the next launch has in the memory of the run, for findings. */
EMU_API void emu_name_parts(const uint64_t *bases, const char *const *names, uint32_t count) {
  n_parts = count < MAX_PARTS ? count : MAX_PARTS;
  for (uint32_t i = 0; i < n_parts; ++i) {
    parts[i].base = bases[i];
    snprintf(parts[i].name, sizeof parts[i].name, "%s", names[i]);
  }
}

/* Allow accesses to the elements of a strided array only, not to what lies between them. */
EMU_API void emu_only_elements(uint64_t first, uint32_t n_dims, const int64_t *sizes,
                               const int64_t *strides, uint64_t base) {
  Region &r = *region_at(base);
  if (!r.cells) make_cells(r);
  const uint64_t step = 1u << r.shift;
  for (uint64_t i = 0; i < r.size / step; ++i) r.cells[i].write.flags |= INVALID;
  int64_t at[64] = {};
  for (uint64_t element = first;;) {
    for (uint64_t i = 0; i < r.element; i += step)
      r.cells[(element + i - r.base) / step].write.flags &= ~INVALID;
    uint32_t d = n_dims;
    for (; d > 0; --d) {
      element += (uint64_t)strides[d - 1];
      if (++at[d - 1] < sizes[d - 1]) break;
      element -= (uint64_t)(strides[d - 1] * sizes[d - 1]);
      at[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

/* Why the driver may not write *size* bytes from *at* on, in numbers of *width*, as a finding. */
static void check_fill(const Region *r, uintptr_t at, uint64_t size, uint32_t width) {
  if (!r || at - r->base >= r->size || size > r->size - (at - r->base))
    return outside(at, size, true, NO_SITE);
  if (at & (width - 1))
    return fail(MISALIGNED, NO_SITE, "misaligned memset by %u bytes: %s", width, place(*r, at));
  if (!(r->flags & WRITABLE))
    return fail(READ_ONLY, NO_SITE, "memset of read-only memory: %s", place(*r, at));
  for (uint64_t i = at - r->base; i < at - r->base + size; ++i)
    if (r->cells[i >> r->shift].write.flags & INVALID)
      return unwritten(*r, r->base + i, r->cells[i >> r->shift].write.flags, NO_SITE);
}

/* Write *count* numbers of *width* bytes from *address* on, after all launches so far and before
 * those to come; ENDED or FOUND. */
EMU_API int32_t emu_fill(uint64_t address, uint64_t value, uint32_t width, uint64_t count) {
  const uint64_t size = count * width;
  memset(&finding, 0, sizeof finding);
  outcome = ENDED;
  current = nullptr;
  if (!size) return outcome;
  Region *r = region_at(address);
  check_fill(r, address, size, width);
  if (outcome == FOUND) return outcome;
  const uint64_t offset = address - r->base;
  if ((offset | size) & ((1u << r->shift) - 1)) split_cells(*r);
  for (uint64_t i = offset >> r->shift; i < (offset + size) >> r->shift; ++i)
    r->cells[i] = Cell{{0, 0, 0, WRITTEN}, {}}; /* a stamp before all launches' */
  for (uint64_t i = 0; i < count; ++i) memcpy((char *)address + i * width, &value, width);
  return outcome;
}

EMU_API const Finding *emu_finding() { return &finding; }
