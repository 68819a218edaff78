/* Emulated memory: regions, where they lie, and what is known of every piece of them.
 *
 *     chunks 1 .. 4     dynamic shared memory
 *     chunks 8 .. 23    static shared variables, with gaps between them
 *     from chunk 32 on  the same for the next blocks of a cluster, if there are clusters
 *     then              arrays, each on chunks of its own between unmapped ones
 *
 * of one large reservation of address space.  A region's cells, one for 1 << shift bytes, hold the
 * last write and the last read. */
#pragma once
#include "order.h"

enum RegionFlags : uint32_t {
  WRITABLE = 1,
  IN_CLUSTER = 8,    /* SHARED, of a block of a cluster */
  FROM_OUTSIDE = 16, /* ... that another block has accessed */
  SHARED = 2,        /* per block: what an earlier block wrote counts as unwritten */
  WRITTEN_BEFORE = 4 /* all of it was written before the first launch */
};

struct Cell { Access write, read; };

struct Region {
  uintptr_t base;
  uint64_t size;
  Cell *cells; /* null where nothing need be known: written before, not writable, without gaps */
  uint32_t flags, shift;
  uint32_t element; /* bytes, for messages */
  uint32_t rank;    /* of the block whose shared memory it is */
  uint64_t cells_bytes;
  char name[120];
};

static const uint64_t CHUNK = 1 << 16;
static const uint64_t DYNAMIC_CHUNK = 1, STATIC_CHUNK = 8, N_STATIC_CHUNKS = 16;
static const uint64_t BLOCK_CHUNKS = 32; /* from the shared memory of one block to the next one's */
static const uint64_t GAP = 256; /* bytes around a shared variable */
static const uint32_t MAX_REGIONS = 4096, IN_STATIC = MAX_REGIONS + MAX_CLUSTER + 1;

static Region regions[MAX_REGIONS + MAX_CLUSTER];
static Region *const dynamic_shared = regions + MAX_REGIONS; /* by rank */
static uint32_t most_ranks = 1; /* of the run's launches */
static uint32_t n_regions; /* arrays of the run, then shared variables of the launch */
static uint32_t n_arrays;
static uintptr_t arena, arena_size, arena_used, static_used;
static uint16_t *chunk_regions;  /* by chunk: 1 + the region's number, 0 for none, IN_STATIC */
static uint16_t *static_regions; /* by 16 bytes of the static shared memory: the same */
static uintptr_t stacks, stacks_size;

static EMU_HOT uintptr_t static_shared() { return arena + STATIC_CHUNK * CHUNK; }
static uintptr_t dynamic_shared_address() { return arena + DYNAMIC_CHUNK * CHUNK + 16; }
/* How far the shared memory of the block of a rank is from that of rank 0. */
static EMU_HOT uintptr_t distance_of(uint32_t rank) { return rank * BLOCK_CHUNKS * CHUNK; }

/* Address space, or zeros; null if there is none left. */
static void *reserve(uint64_t bytes, int protection) {
  void *p = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}

static EMU_HOT Region *region_at(uintptr_t address) {
  if (address - arena >= arena_size) return nullptr;
  uint32_t number = chunk_regions[(address - arena) / CHUNK];
  if (number == IN_STATIC) number = static_regions[(address - static_shared()) / 16];
  return number ? &regions[number - 1] : nullptr;
}

static bool make_cells(Region &r) {
  r.cells_bytes = ((r.size >> r.shift) + 1) * sizeof(Cell);
  r.cells = (Cell *)reserve(r.cells_bytes, PROT_READ | PROT_WRITE); /* zero: never accessed */
  return r.cells;
}

static void drop_cells(Region &r) {
  if (r.cells) munmap(r.cells, r.cells_bytes);
  r.cells = nullptr;
}

/* Tell apart every byte of *r*, for an access of a part of a cell. */
EMU_COLD static void split_cells(Region &r) {
  Region fine = r;
  fine.shift = 0;
  if (!make_cells(fine)) fail(LIMIT, NO_SITE, "no memory is left to check %s", r.name);
  for (uint64_t i = 0; i < r.size; ++i) fine.cells[i] = r.cells[i >> r.shift];
  drop_cells(r);
  r = fine;
}

/* Largest cells that neither straddle elements nor the region's ends. */
static uint32_t shift_for(uint32_t element, uintptr_t base, uint64_t size) {
  uint32_t shift = element >= 4 ? 2 : element >= 2 ? 1 : 0;
  while (shift && ((base | size) & ((1u << shift) - 1))) --shift;
  return shift;
}

static bool set_region(Region &r, uintptr_t base, uint64_t size, uint32_t element, uint32_t flags,
                       const char *name) {
  r = Region{base, size, nullptr, flags, shift_for(element, base, size), element, 0, 0, {}};
  snprintf(r.name, sizeof r.name, "%s", name);
  const bool needs_cells = !(flags & WRITTEN_BEFORE) || flags & WRITABLE;
  return !needs_cells || make_cells(r);
}

static Region *new_region(uintptr_t base, uint64_t size, uint32_t element, uint32_t flags,
                          const char *name) {
  if (n_regions == MAX_REGIONS) return nullptr;
  Region *r = &regions[n_regions++];
  return set_region(*r, base, size, element, flags, name) ? r : nullptr;
}

static uint64_t chunks_of(uint64_t size) { return size / CHUNK + 2; }
static const uint64_t ARRAY_GAP = 64; /* chunks, and the array's size, so that far indices miss */

/* What an array of *size* bytes takes of the arena. */
static uint64_t room_for(uint64_t size) { return (ARRAY_GAP + 2 * chunks_of(size)) * CHUNK; }

/* Memory in the arena at an address that is an odd multiple of *alignment* (a power of two): code
 * that needs more does not get it by chance. */
static Region *allocate(uint64_t size, uint32_t alignment, uint32_t element, uint32_t flags,
                        const char *name) {
  const uint64_t offset = alignment % CHUNK, bytes = chunks_of(size) * CHUNK;
  if (arena_used + room_for(size) > arena_size) return nullptr;
  const uintptr_t start = arena + arena_used + room_for(size) - bytes;
  if (mprotect((void *)start, bytes, PROT_READ | PROT_WRITE)) return nullptr;
  arena_used += room_for(size);
  Region *r = new_region(start + offset, size, element, flags, name);
  if (!r) return nullptr;
  for (uint64_t at = start; at < start + bytes; at += CHUNK)
    chunk_regions[(at - arena) / CHUNK] = (uint16_t)(r - regions + 1);
  return r;
}

static uint32_t shared_flags() {
  return WRITABLE | SHARED | (is_cluster() ? uint32_t(IN_CLUSTER) : 0);
}

/* A shared variable of the launch, at an odd multiple of *alignment* too; rank 0's. */
static Region *allocate_shared(uint64_t size, uint32_t alignment, uint32_t element,
                               const char *name) {
  const uint64_t align = alignment > 16 ? alignment : 16; /* gaps end on what is looked up */
  uint64_t start = (static_used + GAP + 2 * align - 1) / (2 * align) * (2 * align) + alignment;
  if (start + size + 2 * GAP > N_STATIC_CHUNKS * CHUNK) return nullptr;
  static_used = start + size;
  Region *r = nullptr;
  for (uint32_t rank = launch.cluster; rank-- > 0;) {
    const uint64_t from = distance_of(rank) + start;
    r = new_region(static_shared() + from, size, element, shared_flags(), name);
    if (!r) return nullptr;
    r->rank = rank;
    for (uint64_t at = from / 16; at <= (from + size - 1) / 16; ++at)
      static_regions[at] = (uint16_t)(r - regions + 1);
  }
  return r;
}

/* Forget the shared variables of a launch. */
static void release_shared() {
  while (n_regions > n_arrays) drop_cells(regions[--n_regions]);
  for (uint32_t rank = 0; rank < most_ranks; ++rank)
    memset(static_regions + distance_of(rank) / 16, 0, (static_used + 15) / 16 * sizeof(uint16_t));
  static_used = 0;
}

/* ---- texts for findings ------------------------------------------------------------------ */
/* Scratch arrays of the launch, which lie in one region. */
struct Part {
  uintptr_t base;
  char name[120];
};
static const uint32_t MAX_PARTS = 1024;
static Part parts[MAX_PARTS];
static uint32_t n_parts;

/* The part of *r* that starts last before *address*; null if none does. */
EMU_COLD static const Part *part_at(const Region &r, uintptr_t address) {
  const Part *found = nullptr;
  for (const Part *p = parts; p < parts + n_parts; ++p)
    if (p->base >= r.base && p->base <= address && p->base - r.base < r.size &&
        (!found || p->base > found->base))
      found = p;
  return found;
}

EMU_COLD static const char *place(const Region &r, uintptr_t address) {
  static char text[256];
  if (const Part *part = part_at(r, address)) {
    snprintf(text, sizeof text, "byte %llu of scratch array %s",
             (unsigned long long)(address - part->base), part->name);
    return text;
  }
  const int64_t offset = (int64_t)(address - r.base);
  const int64_t element = r.element;
  const int64_t index = offset >= 0 ? offset / element : -((element - 1 - offset) / element);
  const int64_t rest = offset - index * element;
  char byte[48] = "";
  if (rest) snprintf(byte, sizeof byte, ", byte %lld of it", (long long)rest);
  char shared[64] = "";
  if (r.flags & IN_CLUSTER)
    snprintf(shared, sizeof shared, "shared, of block %s, ",
             text_of(dim_of(blocks[r.rank].index, launch.grid)));
  else if (r.flags & SHARED)
    snprintf(shared, sizeof shared, "shared, ");
  snprintf(text, sizeof text, "%s[%lld]%s (%s%llu elements of %u bytes)", r.name, (long long)index,
           byte, shared, (unsigned long long)(r.size / r.element), r.element);
  return text;
}

/* The region that *address* misses by the least, for messages. */
EMU_COLD static const Region *nearest(uintptr_t address) {
  const Region *best = nullptr;
  uint64_t least = 1 << 20;
  for (uint32_t i = 0; i < n_regions + most_ranks; ++i) {
    const Region &r = i < n_regions ? regions[i] : dynamic_shared[i - n_regions];
    const uintptr_t end = r.base + r.size;
    const uint64_t miss = address < r.base ? r.base - address : address > end ? address - end : 0;
    if (miss < least) least = miss, best = &r;
  }
  return best;
}
