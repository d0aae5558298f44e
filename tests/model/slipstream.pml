/* The symmetric-memory protocol as a Promela model: one source, many configurations.
 *
 * Read this file first: what is configurable, what memory there is, who may write it. Then
 *   primitives.pml        signals, waits, group errors, residency: what every role is made of
 *   publish_plan.pml      the caller and kernel 0 (publish, wait, check, plan), collective reset
 *   gather_gate_up.pml    kernel 1
 *   down_reduce_push.pml  kernel 2
 * check.py compiles and runs it; cases.py lists every configuration and every mutation.
 *
 * One process per caller's stream and one per block. Every step between two `;` that is not in
 * one d_step may be interleaved with every other process. A d_step holds at most ONE access to
 * memory that another rank writes or reads; what it holds besides is local to the GPU and
 * commutes with it (README.md argues each fusion). Memory is sequentially consistent here.
 */

/* ---- what a configuration sets ------------------------------------------------------- */

#ifndef W
#define W 2          /* ranks of a group */
#endif
#ifndef INSTANCES
#define INSTANCES 1  /* groups that share the same GPUs */
#endif
#ifndef NB
#define NB 2         /* blocks of kernel 1 and of kernel 2 */
#endif
#ifndef CALLS
#define CALLS 3      /* calls (epochs) of generation 1 */
#endif
#ifndef CALLS_AFTER_RESET
#define CALLS_AFTER_RESET 1
#endif
#ifndef CHUNKS
#define CHUNKS 1     /* most column chunks that any layer has: watermark slots per pair */
#endif
#ifndef RING
#define RING CHUNKS  /* chunk buffers between kernel 2's tiles and its jobs */
#endif
#ifndef TILES1
#define TILES1 1     /* token tiles of kernel 1; each needs every pulled token */
#endif
#ifndef SLOTS
#define SLOTS 0      /* blocks that fit on one GPU at once; 0: any number */
#endif
#ifndef M
#define M 1          /* blocks that may go on waiting for a remote rank */
#endif
#ifndef TIMEOUTS
#define TIMEOUTS 0   /* waits that may run out of time, in all ranks together */
#endif
/* Flags without a value:
 *   INPLACE   the caller writes `tokens` itself; otherwise kernel 0 copies them
 *   MIXED     every rank calls either layer, or (rank 0) passes bad ids: call errors
 *   SMALL     at most one row per owner
 *   PDL       programmatic dependent launch: blocks become resident before their dependency
 *   EARLY_TRIGGER   PDL, and every kernel lets its dependents in at once, as the residency rule
 *             of two instances forbids: the most overlap, for the rules about memory
 *   FOLDED    all ranks share one GPU's residency slots
 *   FINE      every access is a step of its own; without it, steps that commute with all that
 *             the other ranks do are joined (README.md argues each)
 *   COARSE    the opposite, for three ranks and for two instances: see coarse.pml
 *   WHOLE_PULL, WHOLE_PUSH   COARSE, and a block pulls (pushes) all it can in one step
 *   ASYNC     FINE, and bulk stores land later, by a process of their own
 *   LATE_RANK the one rank that may run out of time (where the ranks are alike, that is enough)
 *   TAINT     wrong data is followed to the verdict instead of being refused at the read */

/* ---- mutations: MUT is one of these; each leaves out one condition -------------------- */

#ifndef MUT
#define MUT 0
#endif
#define NO_NULL_JOB          1
#define NO_OWNER_WAIT        2
#define PDL_WRITES_EARLY     3
#define PDL_READS_EPOCH      4
#define PDL_TAKES_EARLY      5
#define CALLER_UNORDERED     6
#define NO_COMPLETION_WAIT   7
#define NO_SIGNATURE_CHECK   8
#define LOCAL_RESET          9
#define GATES_STAY_SHUT     10
#define NO_STATUS_EXCHANGE  11
#define NOT_STICKY          12
#define ELECTED_ADVANCES    13
#define ELECTION_BY_TOKENS  14
#define SLOT_RESET          15
#define EARLY_PUBLISH       16
#define ROLES_BY_INDEX      17
#define NOBODY_LEAVES       18
#define ERROR_SKIPS_SIGNAL  19
#define ERROR_SKIPS_WAIT    20
#define NO_EPOCH_IN_SLOT    21
#define EARLY_WATERMARK     22
#define EARLY_ARRIVAL       23
#define JOBS_BEFORE_TILES   24
#define LAST_CHUNK_ONLY     25
#define PUBLISH_AFTER_ERROR 26
#define PUSH_AFTER_ERROR    27
#define NO_VERDICT_CHECK    28
#define NO_DRAIN            29
#define TRIGGER_FIRST       30
#define REJECT_BY_LAYER     31
#define NO_PUBLISHED_WAIT   32
#define EVERYBODY_LEAVES    33
#define NO_GENERATION       34
#define KERNEL1_WAITS       35

/* ---- witnesses: WIT is one of these; reaching the event fails `unreached` -------------- */

#ifndef WIT
#define WIT 0
#endif
#define W_FINISHED            1  /* every call of every rank done */
#define W_NULL_JOB            2  /* a null job is elected and writes a watermark */
#define W_REJECT_THEN_GOOD    3  /* a call error, and the next call works */
#define W_PDL_OVERLAP         4  /* kernel 0 of the next call resident while kernel 2 runs */
#define W_EARLY_LEAVER        5  /* a block leaves while a remote rank is awaited */
#define W_ERROR_RESET_GOOD    6  /* group error, reset, and the next call works */
#define W_STICKY_CALL         7  /* a call launched on a failed rank */
#define W_TOLD_BY_STATUS      8  /* a rank fails because a peer said so */
#define W_AHEAD               9  /* a peer publishes n+1 before this rank has left call n */
#define W_COMM_COMPUTES      10  /* a communicating block joins the GEMM */
#define W_LONE_BLOCK         11  /* one block does all of a kernel before the other arrives */
#define W_STORE_IN_FLIGHT    12  /* a block runs on while its bulk store is under way */
#define W_RESET_RETRIED      13  /* a reset runs out of time, and its second try works */
#define W_FAILED_BESIDE_GOOD 14  /* one rank fails call n and its peer finishes it well */
#define W_RING_FULL          15  /* a tile waits for a chunk buffer */
#define W_BOTH_INSTANCES     16  /* blocks of two instances resident on one GPU */
#define W_LAYER_MISMATCH     17  /* ranks with different chunk counts reject a call */
#define W_SPLIT_ELECTION     18  /* two blocks of a rank arrive at one election */
#define W_VERDICT_CHECK      19  /* the last leaver alone notices a peer's status */

#ifdef ASYNC
#define FINE
#endif
#if MUT == TRIGGER_FIRST
#define EARLY_TRIGGER
#endif

#define REACHED(event, condition) assert(unreached || WIT != event || !(condition))
#if WIT
byte seen;           /* history that only a witness run needs */
#define NOTE(what) seen = seen | (what)
#else
#define seen 0
#define NOTE(what) skip
#endif

/* ---- names ------------------------------------------------------------------------- */

#define NX          (W * INSTANCES)        /* x, y: a rank of an instance, 0 .. NX-1 */
#define RANK(x)     ((x) % W)
#define PEER(x, p)  ((x) - (x) % W + (p))  /* rank p of x's instance */
#define SLOT(p, q)  ((p) * W + RANK(q))    /* the slot in q's region whose one writer is p */
#define MARK(p, q, c) (SLOT(p, q) * CHUNKS + (c))
#ifdef FOLDED
#define NUM_GPUS    1
#define GPU(x)      0
#else
#define NUM_GPUS    W
#define GPU(x)      RANK(x)
#endif

/* What a slot holds: generation and epoch in one byte, compared as one word. */
#define STAMP(g, e) ((g) * 8 + (e))
#define GEN(s)      ((s) / 8)
#define EPOCH(s)    ((s) % 8)
#define GARBAGE     255

/* The routing of a call, which all ranks see: rows (jobs) of owner o. In every epoch some
 * owner has none. SMALL: (1,1) (0,1) (1,1). W = 2: (2,0) (1,1) (0,2). W = 3: one owner with none, in turn. Every owner
 * has one token more than rows: a token without a valid expert. */
#ifdef SMALL
#define ROUTED(o, s) (EPOCH(s) == 2 && RANK(o) == 0 -> 0 : 1)
#define MAX_ROWS 1
#elif W == 2
#define ROUTED(o, s) (RANK(o) == 0 -> 3 - EPOCH(s) : EPOCH(s) - 1)
#define MAX_ROWS 2
#else
#define ROUTED(o, s) ((RANK(o) + EPOCH(s)) % 3)
#define MAX_ROWS 2
#endif
#define ROWS(x, o, s)  (rejected[x] -> 0 : ROUTED(o, s))
#if MUT == NO_NULL_JOB
#define JOBS(x, o, s)  ROWS(x, o, s)
#else
#define JOBS(x, o, s)  (ROWS(x, o, s) == 0 -> 1 : ROWS(x, o, s))
#endif
#if MUT == ELECTION_BY_TOKENS
#define ELECTION(x, o, s) (rejected[x] -> 1 : ROUTED(o, s) + 1)
#elif MUT == EARLY_WATERMARK
#define ELECTION(x, o, s) 1
#else
#define ELECTION(x, o, s) JOBS(x, o, s)
#endif

/* Two layers take turns on one workspace: layer CHUNKS in odd epochs, layer 1 in even ones. */
#define LAYER(s)    (EPOCH(s) % 2 -> CHUNKS : 1)
#define BAD_IDS     7   /* in place of a layer: this rank's routing has an id out of range */

/* ---- symmetric memory: lies on the rank it is indexed by, other ranks read or write it ---- */

byte tokens[NX];                   /* the stamp of the call whose tokens the buffer holds */
byte routing[NX];                  /* likewise */
byte signature[NX];                /* part of the routing: the layer that this rank calls */
byte staging[NX * W * MAX_ROWS * CHUNKS];
#define ROW(q, p, k, h) (((SLOT(q, p)) * MAX_ROWS + (k)) * CHUNKS + (h))  /* q's plane p */
byte published[NX * W];            /* slots: one writer each, never reset */
byte watermark[NX * W * CHUNKS];
#if TIMEOUTS
byte status[NX * W];
byte drained[NX * W];
#endif

/* ---- memory of one GPU ---------------------------------------------------------------- */

mtype = { IDLE, PLAN, K1, K2 };
mtype phase[NX];                   /* the kernel that runs; the next starts when all left */
bit call[NX];                      /* flips with every call, so that a block runs once in each */
byte stamp[NX];                    /* generation and epoch of the call that runs or is next */
byte num_left[NX];                 /* blocks that left the running kernel */
byte ticket[NX];                   /* arrivals at the running kernel */
bit rejected[NX];                  /* the plan: a call error, hence tables of null jobs only */
byte num_chunks[NX];
byte num_jobs[NX];                 /* per chunk */
byte next_token[NX];               /* dispensers, seeded by the plan */
byte next_tile1[NX];
byte next_tile2[NX];
byte next_job[NX];
byte next_seat[NX];
byte next_row[NX * CHUNKS];
byte gate[NX];                     /* arrivals of pulled owners */
byte gathered[NX * W];             /* stamp of the pulled copy of each owner's tokens */
byte acts[NX];                     /* stamp of kernel 1's output */
byte rows[NX * RING];              /* what a chunk buffer holds: stamp and chunk */
byte tiles_done[NX * CHUNKS];
byte arrived[NX * W * CHUNKS];     /* election of (owner, chunk) */
#if RING < CHUNKS
byte jobs_done[NX * CHUNKS];
#endif
#if TIMEOUTS
bit failed[NX];                    /* the sticky group error, on the device */
byte timeouts = TIMEOUTS;
#endif
#ifdef TAINT
bit dirty[NX];                     /* ghost: this call of this rank has read wrong data */
#endif
#if SLOTS
byte free_slots[NUM_GPUS];
#endif
#ifdef PDL
byte residents1[NX], residents2[NX];
byte triggered[NX];                /* blocks of the running kernel that let dependents launch */
#endif

/* Kinds of failure. A check assigns one of these and asserts that it is 0, so that the text of
 * the violated assertion names the kind. */
hidden byte overwrite_tokens, overwrite_routing, overwrite_staging, overwrite_rows;
hidden byte stale_tokens, stale_routing, stale_staging, stale_gathered, stale_rows;
hidden byte overwrite_reported_good, lost_row, wrong_verdict, unreached;

#include "primitives.pml"
#include "publish_plan.pml"
#include "gather_gate_up.pml"
#include "down_reduce_push.pml"
#ifdef COARSE
#include "coarse.pml"
#endif

init {
  byte i;
  atomic {
#if SLOTS
    for (i : 0 .. NUM_GPUS - 1) { free_slots[i] = SLOTS }
#endif
    for (i : 0 .. NX - 1) {
      phase[i] = IDLE;
      stamp[i] = STAMP(1, 1);
      run publish_plan(i);
      run gather_gate_up(i, 0);
      run gather_gate_up(i, 1);
      run down_reduce_push(i, 0);
      run down_reduce_push(i, 1);
#ifdef ASYNC
      run copy_engine(i, 0);
      run copy_engine(i, 1);
#endif
    };
    i = 0
  }
}
