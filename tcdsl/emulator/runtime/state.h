/* What the parts of the runtime share: the launch, the running thread, and the finding.
 *
 * One launch runs at a time in one operating-system thread: nothing here needs a lock. */
#pragma once
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "switch.h"

#define EMU_API extern "C" __attribute__((visibility("default")))
#define EMU_LOCAL extern "C" __attribute__((visibility("hidden"))) /* for the kernels' object */
#define EMU_COLD __attribute__((noinline, cold))
#define EMU_HOT inline __attribute__((always_inline))

enum Outcome : int32_t { ENDED, PAUSED, FOUND };

/* Mirrored in run.py: the kinds of findings, in this order. */
enum Kind : int32_t {
  NO_KIND, DEADLOCK, DIVERGENT_BARRIER, WRONG_SHUFFLE, OUT_OF_BOUNDS, READ_ONLY, RACE,
  UNINITIALISED, MISALIGNED, LIMIT, CRASH,
};

struct Finding {
  int32_t kind, has_thread;
  uint32_t block[3], thread[3];
  uint64_t address; /* of the code that did it, relative to the library's start, or 0 */
  char file[64];    /* where the runtime was called from, or "" */
  int32_t line, padding;
  char text[1536];
};

struct Dim { uint32_t x, y, z; };

struct Launch {
  void (*call)(const uint64_t *);
  Dim grid, block;
  uint32_t n_blocks, n_threads, n_warps; /* threads and warps of one block */
  Dim cluster_dims;                      /* blocks that run at the same time, ... */
  uint32_t cluster;                      /* ... and how many these are */
  bool has_boxes;                        /* copies of them arrive at barriers in phases */
  bool is_cooperative;                   /* all blocks are there at once, and may wait for all */
  bool is_in_order;                      /* blocks wait for others, of lesser numbers */
};

enum State : uint8_t { READY, AT_BARRIER, AT_EXCHANGE, AT_CLUSTER_BARRIER, AT_GRID_BARRIER, AT_PHASE, DONE };

/* Where a kernel calls the runtime: file and line if it says so, and where it returns to. */
struct Site { const char *file; int line; const void *code; };
static const Site NO_SITE = {nullptr, 0, nullptr};
#define EMU_CALLER __builtin_return_address(0)
#define EMU_HERE (Site{nullptr, 0, EMU_CALLER})

struct Copy;    /* of async.h */
struct Product; /* of products.h */
struct Phases;  /* of mbarriers.h */

struct Fibre {
  void *context;
  char *stack; /* null before it starts and after it ends */
  Dim thread;
  uint32_t index;
  State state;
  uint8_t kind; /* emu_barrier_kind or emu_exchange */
  Site site;
  uint32_t mask;
  int32_t operand, width; /* of the exchange; the barrier's predicate */
  uint64_t bits;
  /* Of the cluster's barrier: how often it came, waited, and of how many phases it knows. */
  uint32_t arrivals, waits, phases;
  Copy *copies; /* that it has not waited for, ... */
  uint32_t groups; /* ... and how many groups of them it has ended */
  Product *products;
  const Phases *phase; /* whose end it waits for */
  Phases *waited; /* for a phase of which it has waited last */
};

/* A block that runs: the only one, or one of a cluster. */
static const uint32_t MAX_CLUSTER = 16, MAX_THREADS = 1024;
struct Knowledge;
struct Block {
  uint32_t index; /* linear */
  uint32_t rank;  /* in its cluster, else 0 */
  Fibre *fibres;
  Knowledge *knowledge; /* by thread */
  uint16_t *order;      /* in which its threads run, ... */
  uint32_t position;    /* ... and where that stands */
  uint32_t threads_done, at_barrier, barrier_sum, barrier_result, at_grid_barrier;
  const Fibre *first_at_barrier;
  uint32_t last_barrier, known_fence_barrier; /* the last barrier; that before a fence known to all */
  /* In a cluster only (order.h): */
  uint32_t ticks, ordered, published[4];
};

static Launch launch;
static Finding finding;
static Fibre *current;   /* null in the scheduler */
static void *scheduler;  /* its context */
static Block blocks[MAX_CLUSTER];
static Block *own = blocks; /* the current fibre's */
static Outcome outcome;
static int64_t budget;   /* checked accesses until the next pause */
static const int64_t PAUSE_EVERY = 1 << 24;

static EMU_HOT Dim dim_of(uint32_t index, Dim size) {
  return {index % size.x, index / size.x % size.y, index / size.x / size.y};
}

static void leave(Outcome why) {
  outcome = why;
  emu_switch(&current->context, scheduler);
}

static void set_thread(uint32_t block_index, Dim thread) {
  const Dim b = dim_of(block_index, launch.grid);
  const uint32_t values[6] = {b.x, b.y, b.z, thread.x, thread.y, thread.z};
  memcpy(finding.block, values, sizeof values);
  finding.has_thread = 1;
}

/* Record a finding; a fibre that calls this never runs again. */
__attribute__((format(printf, 3, 4))) EMU_COLD static void
fail(Kind kind, const Site &site, const char *format, ...) {
  extern char start_of_library[] asm("__ehdr_start") __attribute__((visibility("hidden")));
  va_list values;
  va_start(values, format);
  vsnprintf(finding.text, sizeof finding.text, format, values);
  va_end(values);
  finding.kind = kind;
  finding.address = site.code ? (uint64_t)((const char *)site.code - start_of_library) : 0;
  if (site.file) snprintf(finding.file, sizeof finding.file, "%s", site.file);
  finding.line = site.line;
  if (current) {
    set_thread(own->index, current->thread);
    leave(FOUND);
    abort(); /* the scheduler does not come back */
  }
  outcome = FOUND;
}

/* Texts for findings, in a few buffers that take turns. */
EMU_COLD static const char *text_of(Dim d) {
  static char texts[8][48];
  static int turn;
  char *text = texts[turn++ & 7];
  snprintf(text, sizeof texts[0], "(%u, %u, %u)", d.x, d.y, d.z);
  return text;
}

/* Memory that lasts until the end of the launch. */
struct Chunk { Chunk *next; };
static Chunk *chunks;
static void *launch_memory(size_t bytes) {
  Chunk *chunk = (Chunk *)malloc(sizeof(Chunk) + bytes);
  if (!chunk) abort();
  chunk->next = chunks;
  chunks = chunk;
  return chunk + 1;
}
static void free_launch_memory() {
  while (chunks) {
    Chunk *next = chunks->next;
    free(chunks);
    chunks = next;
  }
}

/* Memory of a launch that grows; its old places are freed with the launch. */
template <typename T> struct Vector {
  T *items;
  uint32_t size, room;
  void push(T item) {
    if (size == room) {
      room = room ? 2 * room : 8;
      T *more = (T *)launch_memory(room * sizeof(T));
      if (size) memcpy(more, items, size * sizeof(T));
      items = more;
    }
    items[size++] = item;
  }
};
