/* Barriers in phases ("mbarrier"), and copies of boxes that arrive at them.
 *
 * A phase ends when as many threads have arrived as were said at first, and all bytes that these
 * expected.  What a thread did before it arrived happens before what a thread does that has waited
 * for the phase.  Whoever waits names a parity: that of a phase that has ended, or of the one that
 * goes on, for whose end it waits.  A box is on its way from the call until somebody waits for the
 * phase that it counts in, or until nothing else can go on; who touches its place before is found
 * as with other copies (async.h).
 *
 * Who copies boxes has waited for a barrier by which readers say that they are done with the place,
 * and their next phase there says so of these boxes.  The next copy finds who reads later, or is not
 * ordered before; of a place that is not used again the end of the block does. */
#pragma once
#include "async.h"
#include "fibres.h"

/* As run.py makes it: of an array, and of the box of one copy; innermost dimension first. */
struct Map {
  uint64_t address, rank, element; /* bytes of an element */
  uint64_t has_pixels;             /* a copy is of rows of pixels, not of a box */
  uint64_t is_rounded;             /* float32, to tf32 */
  uint64_t sizes[5], strides[5];   /* strides in bytes */
  uint64_t box[5];                 /* of pixels: neighbours, and how many pixels */
  /* Of pixels: the first place along each dimension but the first and the last, from the start, and
   * the last one from the end; and from one place to the next. */
  int64_t lower[5], upper[5], steps[5];
};

struct Box {
  Box *next; /* issued after this one */
  char *to;
  uint64_t size;
  char *bytes;
  uint32_t thread, stamp; /* of the issue: the thread's number in the cluster */
  Site site;
};

/* Where a box was copied to: the place in shared memory, and the stamp of that write. */
struct Filled {
  char *to;
  uint64_t size;
  uint32_t stamp;
  Site site;
};

struct Phases {
  Phases *next;
  const void *place;
  uint32_t count, pending; /* arrivals of a phase, and those that are missing */
  int64_t bytes;           /* that are missing, too */
  uint32_t ended;          /* phases */
  Box *boxes;              /* on their way */
  uint32_t *coming, *known; /* by thread, up to where its accesses are ordered before: by the phase
                               that goes on, and by the last that has ended */
  uint32_t *outside; /* by thread of another block, when it arrived last; null if none has */
  Vector<Filled> filled; /* by who had waited for it, when *filled_in* of its phases had ended */
  uint32_t filled_in;
};
static Phases *all_phases; /* of the block, or the cluster's blocks */
static uint32_t known_table[MOST_KNOWN * MOST_KNOWN];

static uint32_t *new_row() {
  const uint64_t bytes = n_known() * sizeof(uint32_t);
  uint32_t *row = (uint32_t *)launch_memory(bytes);
  memset(row, 0, bytes);
  return row;
}

/* From here on what is ordered is known of each thread. */
static void know_threads() {
  forget_accesses();
  known_through_phases = known_table;
  memset(known_table, 0, (uint64_t)n_known() * n_known() * sizeof(uint32_t));
}

EMU_LOCAL void emu_phases_begin(const void *place, int count, const char *file, int line) {
  const Site site = {file, line, EMU_CALLER};
  if (counts_phases()) fail(LIMIT, site, "barriers in phases are not emulated in clusters without boxes");
  if (!known_through_phases) know_threads();
  Phases *one = (Phases *)launch_memory(sizeof(Phases));
  *one = {all_phases, place,     (uint32_t)count, (uint32_t)count, 0,  0,
          nullptr,    new_row(), new_row(),       nullptr,         {}, 0};
  all_phases = one;
}

static Phases *phases_at(const void *place, Site site) {
  for (Phases *one = all_phases; one; one = one->next)
    if (one->place == place) return one;
  fail(UNINITIALISED, site, "a barrier in phases that nobody has begun");
  return nullptr;
}

static void end_phase(Phases &one) {
  ++one.ended;
  one.pending = one.count;
  memcpy(one.known, one.coming, n_known() * sizeof(uint32_t));
  for (Block *b = blocks; b < blocks + launch.cluster; ++b)
    for (uint32_t t = 0; t < launch.n_threads; ++t) {
      Fibre &f = b->fibres[t];
      if (f.state == AT_PHASE && f.phase == &one && (one.ended & 1) != f.mask) f.state = READY;
    }
}

static bool has_ended(const Phases &one) { return one.pending == 0 && one.bytes == 0; }

static void deliver(Phases &one, Box &box) {
  Region &r = *region_at((uintptr_t)box.to);
  const uint64_t offset = (uintptr_t)box.to - r.base;
  for (uint64_t at = offset; at < offset + box.size; at += 1u << r.shift) {
    Access &write = r.cells[at >> r.shift].write;
    write.flags = WRITTEN;
  }
  memcpy(box.to, box.bytes, box.size);
  free(box.bytes);
  one.bytes -= (int64_t)box.size;
  if (one.coming[box.thread] < box.stamp) one.coming[box.thread] = box.stamp;
}

/* Let what is on its way to *one* arrive, as far as its phase wants it; whether anything did. */
static bool deliver_all(Phases &one) {
  bool any = false;
  while (one.boxes && one.pending == 0 && one.bytes > 0) {
    Box *box = one.boxes;
    one.boxes = box->next;
    deliver(one, *box);
    any = true;
  }
  if (any && has_ended(one)) end_phase(one);
  return any;
}

static bool deliver_somewhere() {
  for (Phases *one = all_phases; one; one = one->next)
    if (deliver_all(*one)) return true;
  return false;
}

/* What the current thread knows those will know that wait for *one*. */
static void tell(Phases &one) {
  for (uint32_t t = 0; t < n_known(); ++t) {
    const uint32_t upto = known_of(t);
    if (one.coming[t] < upto) one.coming[t] = upto;
  }
  ++now; /* what this thread does from here on is not ordered by it */
}

static void learn(const Phases &one) {
  forget_accesses();
  uint32_t *through = known_through_phases + known_self() * n_known();
  for (uint32_t t = 0; t < n_known(); ++t)
    if (through[t] < one.known[t]) through[t] = one.known[t];
}

/* A thread of this block, or of another one of the cluster, arrives. */
EMU_LOCAL void emu_phases_arrive(const void *place, int bytes, const char *file, int line) {
  const Site site = {file, line, EMU_CALLER};
  Region *r = region_at((uintptr_t)place);
  if (r && r->rank != own->rank) check_from_outside(*r, (uintptr_t)place, true, site);
  Phases &one = *phases_at(place, site);
  if (r && r->rank != own->rank) {
    if (!one.outside) one.outside = new_row();
    one.outside[known_self()] = now;
  }
  tell(one);
  one.bytes += bytes;
  if (one.pending) --one.pending;
  if (has_ended(one)) end_phase(one);
}

EMU_LOCAL void emu_phases_wait(const void *place, unsigned parity, const char *file, int line) {
  const Site site = {file, line, EMU_CALLER};
  Phases &one = *phases_at(place, site);
  Fibre *f = current;
  f->waited = &one;
  while ((one.ended & 1) == parity) { /* the phase of this parity goes on */
    if (deliver_all(one)) continue;
    f->state = AT_PHASE;
    f->phase = &one;
    f->mask = parity;
    f->site = site;
    leave(ENDED);
  }
  learn(one);
}

/* What the box from *indices* on holds: zeros outside the array, of which each element is read. */
static void read_box(const Map &map, const int *indices, char *to, Site site) {
  uint64_t at[5] = {};
  for (char *end = to;; end += map.element) {
    bool is_there = true;
    uint64_t address = map.address;
    for (uint64_t d = 0; d < map.rank; ++d) {
      const int64_t index = (int64_t)indices[d] + (int64_t)at[d];
      is_there &= index >= 0 && index < (int64_t)map.sizes[d];
      address += (uint64_t)index * map.strides[d];
    }
    memset(end, 0, map.element);
    if (is_there) {
      check_access<false, false>(address, map.element, map.element, site);
      memcpy(end, (const void *)address, map.element);
    }
    uint64_t d = 0;
    while (d < map.rank && ++at[d] == map.box[d]) at[d++] = 0;
    if (d == map.rank) return;
  }
}

/* To the nearest of 11 bits, ties to even. */
static void round_to_tf32(uint32_t *words, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i)
    if ((words[i] & 0x7f800000u) != 0x7f800000u)
      words[i] = (words[i] + 0xfffu + (words[i] >> 13 & 1)) & ~0x1fffu;
}

/* What rows of pixels hold: the first is at *indices* (of the first of its neighbours), and all are
 * read *offsets* further on.  The next one is a step further along the second dimension, while that
 * is not beyond the upper corner; else at its lower corner, and a step further along the third one.
 * The last dimension has no corners.  (PTX ISA, "im2col mode") */
static void read_pixels(const Map &map, const int *indices, const int *offsets, char *to, Site site) {
  const int last = (int)map.rank - 1;
  int64_t at[5], end[5];
  for (int d = 0; d <= last; ++d) at[d] = indices[d];
  for (int d = 1; d < last; ++d) {
    end[d] = (int64_t)map.sizes[d] - 1 + map.upper[d];
    if (at[d] < map.lower[d] || at[d] > end[d])
      fail(OUT_OF_BOUNDS, site, "the first pixel is outside the corners along dimension %d", d);
    if (offsets[d - 1] < 0) fail(OUT_OF_BOUNDS, site, "an offset of pixels is below 0");
  }
  for (uint64_t pixel = 0; pixel < map.box[1]; ++pixel) {
    for (uint64_t e = 0; e < map.box[0]; ++e, to += map.element) {
      bool is_there = true;
      uint64_t address = map.address;
      for (int d = 0; d <= last; ++d) {
        const int64_t own = at[d] + (d == 0 ? (int64_t)e : d < last ? offsets[d - 1] : 0);
        is_there &= own >= 0 && own < (int64_t)map.sizes[d];
        address += (uint64_t)own * map.strides[d];
      }
      memset(to, 0, map.element);
      if (is_there) {
        check_access<false, false>(address, map.element, map.element, site);
        memcpy(to, (const void *)address, map.element);
      }
    }
    int d = 1;
    while (d < last && (at[d] += map.steps[d]) > end[d]) {
      at[d] = map.lower[d];
      ++d;
    }
    if (d == last) ++at[d];
  }
}

/* The barrier that the current thread has waited for guards what it copies now. */
static void note_filled(char *to, uint64_t size, Site site) {
  Phases *guard = current->waited;
  if (!guard) return;
  if (guard->filled_in != guard->ended) guard->filled.size = 0;
  guard->filled_in = guard->ended;
  guard->filled.push({to, size, now, site});
}

/* Put what has been read, *plain*, on its way to its swizzled place. */
static void send_box(void *to, const char *plain, uint64_t size, const Map &map, Phases &one,
                     Site site) {
  if (((uintptr_t)to - dynamic_shared_address()) % 1024)
    fail(MISALIGNED, site, "a box's place in shared memory is at no multiple of 1024 bytes");
  check_access<true, false>((uintptr_t)to, size, 16, site);
  note_filled((char *)to, size, site);
  char *bytes = (char *)malloc(size);
  Box *box = (Box *)launch_memory(sizeof(Box));
  *box = {nullptr, (char *)to, size, bytes, known_self(), now, site};
  for (uint64_t i = 0; i < size; i += 16) /* 16 bytes change places within a line of 128 */
    memcpy(bytes + (i ^ (i / 128 % 8 * 16)), plain + i, 16);
  memset(to, 0xff, size);
  Region &r = *region_at((uintptr_t)to);
  const uint64_t offset = (uintptr_t)to - r.base;
  for (uint64_t at = offset; at < offset + size; at += 1u << r.shift)
    r.cells[at >> r.shift].write.flags |= IN_FLIGHT;
  Box **last = &one.boxes;
  while (*last) last = &(*last)->next;
  *last = box;
}

static char *room_of(const Map &map, uint64_t size, Site site) {
  const uint64_t width = map.box[0] * map.element;
  if (width != 128) fail(LIMIT, site, "lines of a box have 128 bytes, not %d", (int)width);
  return (char *)malloc(size);
}

/* The same place in the shared memory of the block of a *rank*. */
static char *there(const void *p, uint32_t rank) {
  return (char *)p - distance_of(own->rank) + distance_of(rank);
}

/* The bits of *mask* are the blocks of the cluster that get the box; 0: this one does. */
EMU_LOCAL void emu_copy_box(void *to, const void *of, const int *indices, const void *place,
                            unsigned mask, const char *file, int line) {
  const Site site = {file, line, EMU_CALLER};
  const Map &map = *(const Map *)of;
  uint64_t size = map.element;
  for (uint64_t d = 0; d < map.rank; ++d) size *= map.box[d];
  char *plain = room_of(map, size, site);
  if (map.has_pixels) fail(LIMIT, site, "a copy of a box by a map of pixels");
  check_copied_memory((uintptr_t)to, 0, site);
  if (mask >> launch.cluster)
    fail(OUT_OF_BOUNDS, site, "a copy to blocks 0x%x of a cluster of %u", mask, launch.cluster);
  read_box(map, indices, plain, site);
  if (map.is_rounded) round_to_tf32((uint32_t *)plain, size / 4);
  for (uint32_t rest = mask ? mask : 1u << own->rank; rest; rest &= rest - 1) {
    const uint32_t rank = (uint32_t)__builtin_ctz(rest);
    send_box(there(to, rank), plain, size, map, *phases_at(there(place, rank), site), site);
  }
  free(plain);
}

EMU_LOCAL void emu_copy_pixels(void *to, const void *of, const int *indices, const int *offsets,
                               const void *place, const char *file, int line) {
  const Site site = {file, line, EMU_CALLER};
  const Map &map = *(const Map *)of;
  const uint64_t size = map.element * map.box[0] * map.box[1];
  Phases &one = *phases_at(place, site);
  char *plain = room_of(map, size, site);
  if (!map.has_pixels) fail(LIMIT, site, "a copy of pixels by a map of boxes");
  check_copied_memory((uintptr_t)to, 0, site);
  read_pixels(map, indices, offsets, plain, site);
  if (map.is_rounded) round_to_tf32((uint32_t *)plain, size / 4);
  send_box(to, plain, size, map, one, site);
  free(plain);
}

/* At the end of a block, whose last thread is the current one: who is outside has arrived before. */
static void check_arrivals_from_outside() {
  for (const Phases *one = all_phases; one; one = one->next) {
    const Region *r = region_at((uintptr_t)one->place);
    if (!one->outside || r->rank != own->rank) continue;
    for (uint32_t t = 0; t < n_known(); ++t)
      if (one->outside[t] && !knows_thread(t, one->outside[t]))
        fail(RACE, NO_SITE, "data race at %s: an arrival from another block and the end of this one "
             "are not ordered: no barrier of the cluster lies between them",
             place(*r, (uintptr_t)one->place));
  }
}

/* At the end of a block: what is still on its way would arrive in another one's memory. */
static void check_boxes_have_arrived() {
  for (const Phases *one = all_phases; one; one = one->next)
    if (one->boxes)
      fail(RACE, one->boxes->site, "data race: a copy of a box and the end of its block are not "
           "ordered: nobody waits for it");
}

/* Whether all threads of *a* are known up to it, by thread of the block or the cluster. */
static bool is_known(const Access &a, const uint32_t *known) {
  Several threads = {};
  if (is_of_several(a)) {
    threads = several.items[a.warp - SEVERAL];
  } else {
    if (a.warp >= MANY_OF_ONE) return false;
    threads.stamp[known_warp(a.warp)] = a.stamp;
    threads.lanes[known_warp(a.warp)] = a.lanes;
  }
  return each_of_several(threads, [=](uint32_t t, uint32_t stamp) { return stamp <= known[t]; });
}

static void check_filled(const Filled &box, const Phases &guard) {
  const Region &r = *region_at((uintptr_t)box.to);
  const uint64_t offset = (uintptr_t)box.to - r.base;
  Access known = {}; /* many pieces are read by the same threads */
  for (uint64_t at = offset; at < offset + box.size; at += 1u << r.shift) {
    const Cell &cell = r.cells[at >> r.shift];
    const Access &read = cell.read;
    if (cell.write.stamp != box.stamp || !read.stamp) continue; /* written again, or not read */
    if (!memcmp(&read, &known, sizeof known)) continue;
    if (!is_known(read, guard.known))
      return fail(RACE, box.site, "data race at %s: the read by %s and the next copy to it would not be "
                  "ordered: the stage is released without a __syncwarp between them, or before it is "
                  "read", place(r, r.base + at), who(read));
    known = read;
  }
}

/* At the end of a block, or a cluster: who released a place was ordered after all that read it. */
static void check_boxes_were_read() {
  for (const Phases *one = all_phases; one && outcome != FOUND; one = one->next)
    for (uint32_t i = 0; one->ended > one->filled_in && i < one->filled.size && outcome != FOUND; ++i)
      check_filled(one->filled.items[i], *one);
}
