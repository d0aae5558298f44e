/* The caller's stream and kernel 0 of every call: publish, wait for the peers' routing, check
 * that all ranks agree, seed the tables and counters of kernels 1 and 2. One block. Under
 * TIMEOUTS also the collective reset. Next: gather_gate_up.pml. */

#if CHUNKS == 1
#define SEED_CHUNKS next_row[x] = 0; tiles_done[x] = 0
#else
#define SEED_CHUNKS \
  next_row[x * 2] = 0; next_row[x * 2 + 1] = 0; tiles_done[x * 2] = 0; tiles_done[x * 2 + 1] = 0
#endif
#if RING < CHUNKS
#define SEED_RING jobs_done[x * 2] = 0; jobs_done[x * 2 + 1] = 0
#else
#define SEED_RING skip
#endif

#if MUT == NO_DRAIN
#define DRAINED_HERE(x) 1
#else
#define DRAINED_HERE(x) (phase[x] == IDLE)
#endif
#if MUT == LOCAL_RESET
#define MAY_RESET(x) 1
#else
#define MAY_RESET(x) ALL_DRAINED(x)
#endif

/* Counters are seeded here, in stream order behind the kernels that used them last. */
inline seed() {
  next_token[x] = 0; next_tile1[x] = 0; next_tile2[x] = 0; next_job[x] = 0; next_seat[x] = 0;
  gate[x] = 0; acts[x] = 0;
  SEED_CHUNKS; SEED_RING;
  num_jobs[x] = 0;
  for (i : 0 .. W - 1) {
    arrived[MARK(x, i, 0)] = 0;
#if CHUNKS > 1
    arrived[MARK(x, i, 1)] = 0;
#endif
    num_jobs[x] = num_jobs[x] + JOBS(x, PEER(x, i), e)
  };
  i = 0
}

#if defined(FINE) || defined(MIXED) || MUT == EARLY_PUBLISH || MUT == PDL_WRITES_EARLY
#define WRITES_LATER    /* and not in the step in which kernel 0 starts */
#endif
#define NEXT_STAMP(x) (stamp[x] + (phase[x] != IDLE))    /* that of the call not yet started */
#if MUT == CALLER_UNORDERED
#define IN_STREAM_ORDER(x) 1
#else
#define IN_STREAM_ORDER(x) (phase[x] == IDLE)
#endif
inline write_own_data() {
#ifndef INPLACE
  tokens[x] = e;
#endif
#if MUT == SLOT_RESET
  for (i : 0 .. W - 1) {
    published[SLOT(PEER(x, i), x)] = 0;
    watermark[MARK(PEER(x, i), x, 0)] = 0
  };
  i = 0;
#endif
  routing[x] = e;
  signature[x] = layer
}

/* All ranks see the same routing, so all of them find the same call error. A rejected call has
 * tables of null jobs only, and ONE chunk whatever its layer has: ranks that disagree about the
 * layer must still exchange the same watermarks. */
inline read_routing() {
  bad = 0;
  for (i : 0 .. W - 1) {
#if MUT != KERNEL1_WAITS
    check_read(routing[PEER(x, i)], e, overwrite_routing, stale_routing);
    bad = bad || signature[PEER(x, i)] == BAD_IDS;
#if MUT != NO_SIGNATURE_CHECK
    bad = bad || signature[PEER(x, i)] != layer;
#endif
#endif
    REACHED(W_LAYER_MISMATCH, signature[PEER(x, i)] < layer && layer != BAD_IDS)
  };
  i = 0;
  rejected[x] = bad;
#if MUT == REJECT_BY_LAYER
  num_chunks[x] = (layer == BAD_IDS -> 1 : layer);
#else
  num_chunks[x] = (bad -> 1 : layer);
#endif
  REACHED(W_REJECT_THEN_GOOD, !bad && (seen & (1 << x)));
  if
  :: bad -> NOTE(1 << x)
  :: else
  fi
}
/* A call that failed has no tables: null jobs, as if rejected. The mutation has old ones. */
inline reject() { rejected[x] = (MUT != PUSH_AFTER_ERROR); num_chunks[x] = 1 }
#if MUT == NO_PUBLISHED_WAIT || MUT == KERNEL1_WAITS
#define HEARD(x, s) 1
#else
#define HEARD(x, s) ALL_PUBLISHED(x, s)
#endif

#if TIMEOUTS
/* A value of an older generation satisfies no wait and no check, whatever it is: one value for
 * all of them merges the many ways in which a call may have failed. */
#define FORGET(value) value = (GEN(value) < GEN(stamp[x]) -> 0 : value)
inline forget_generation() {
#if MUT != NO_GENERATION
  FORGET(tokens[x]);
  FORGET(routing[x]);
  for (i : 0 .. W - 1) { FORGET(published[SLOT(PEER(x, i), x)]) };
  for (i : 0 .. W * CHUNKS - 1) { FORGET(watermark[MARK(PEER(x, i % W), x, i / W)]) };
  for (i : 0 .. W * MAX_ROWS * CHUNKS - 1) { FORGET(staging[ROW(x, PEER(x, 0), 0, 0) + i]) };
  i = 0
#else
  skip
#endif
}
#endif

/* The last step of kernel 0: kernel 1 may start. */
inline end_plan() {
  NEXT_PHASE(x, K1);
  GIVE_SLOT(x);
  n++; e = 0; layer = 0; bad = 0; ok = 1
}
inline finish_plan() {
  seed();
#ifdef PDL
#ifndef EARLY_TRIGGER
  TRIGGER(x)
#endif
#else
  end_plan()
#endif
}

proctype publish_plan(byte x) {
  byte e, i, layer;
  byte n = 0;                     /* calls so far */
  bit ok = 1;
  bit bad;
#if TIMEOUTS
  bit after_reset;
#endif

  do
  ::
    /* The caller writes its tokens itself, in stream order. */
#ifdef INPLACE
    d_step { n < CALLS && IN_STREAM_ORDER(x) -> tokens[x] = NEXT_STAMP(x) };
#endif
    /* Kernel 0 becomes resident, then waits for its dependency. */
#ifdef PDL
    d_step { n < CALLS && PLAN_LAUNCHED(x) && ROOM(x) -> TAKE_SLOT(x);
             REACHED(W_PDL_OVERLAP, phase[x] == K2) };
#endif
#if MUT == PDL_READS_EPOCH
    e = stamp[x];
#endif
#if MUT == PDL_WRITES_EARLY
    d_step { e = NEXT_STAMP(x); layer = LAYER(e); write_own_data() };
#endif
    d_step {
      n < CALLS && phase[x] == IDLE && CAN_START(x) ->
      ON_START(x);
      NEXT_PHASE(x, PLAN);
      call[x] = 1 - call[x];
#if MUT != PDL_READS_EPOCH
      e = stamp[x];
#endif
#ifndef MIXED
      layer = LAYER(e);
#endif
#ifdef TAINT
      dirty[x] = 0;
#endif
#if MUT == NOT_STICKY
      failed[x] = 0;
#endif
      ok = !FAILED(x);
#ifdef EARLY_TRIGGER
      TRIGGER(x);
#endif
      REACHED(W_STICKY_CALL, !ok);
#ifndef WRITES_LATER
      if
      :: ok -> write_own_data();
#ifdef WHOLE_PUSH
           published[SLOT(x, NEXT(x, 1))] = e
#endif
      :: else
      fi
#endif
    };

    if
    :: ok ->
#ifdef MIXED
      if
      :: layer = 1
      :: layer = CHUNKS
      :: RANK(x) == 0 -> layer = BAD_IDS
      fi;
#endif
#if defined(WRITES_LATER) && MUT != EARLY_PUBLISH && MUT != PDL_WRITES_EARLY
      d_step { write_own_data() };
#endif
#ifndef WHOLE_PUSH
      SIGNAL_PEERS(published, e);
#endif
#if MUT == EARLY_PUBLISH
      d_step { write_own_data() };
#endif
      if
#ifdef FINE
      :: d_step { HEARD(x, e) -> skip }; d_step { read_routing(); finish_plan() }
#else
      :: d_step { HEARD(x, e) -> read_routing(); finish_plan() }
#endif
#if TIMEOUTS
      OR_ELSE(GIVES_UP(HEARD(x, e)), give_up(), reject(); finish_plan(), )
#endif
      fi
    :: !ok -> d_step { reject(); finish_plan() }      /* sticky: publishes nothing */
    fi
#ifdef PDL
    ; d_step { end_plan() }
#endif
#if TIMEOUTS
  /* A host that looks at the result need not launch the rest. */
  :: d_step { 0 < n && n < CALLS && !after_reset && phase[x] == IDLE && failed[x] -> n = CALLS }

  /* Collective reset. Own streams are drained, and nothing may start until it has worked. */
  :: d_step {
       n == CALLS && !after_reset && DRAINED_HERE(x) ->
       if
       :: failed[x] -> NOTE(1 << x)
       :: else
       fi;
       failed[x] = 1
     };
     SIGNAL_PEERS(drained, GEN(stamp[x]));
    do
    :: d_step {
         MAY_RESET(x) ->
         REACHED(W_RESET_RETRIED, seen & 128);
         stamp[x] = STAMP(GEN(stamp[x]) + 1, 1);
         failed[x] = 0;
         forget_generation();
         n = CALLS - CALLS_AFTER_RESET;
         after_reset = 1
       } break
    :: d_step { !MAY_RESET(x) && timeouts > 0 -> timeouts--; NOTE(128) }  /* the host retries */
    od
  /* Deadlines pass in generation 1 only: generation 2 must work. */
  :: d_step {
       n == CALLS && after_reset && phase[x] == IDLE ->
       wrong_verdict = failed[x];
       assert(!wrong_verdict);
       REACHED(W_ERROR_RESET_GOOD, (seen & (1 << x)) && !failed[x]);
       REACHED(W_FINISHED, 1)
     } break
#else
  :: d_step { n == CALLS && phase[x] == IDLE -> REACHED(W_FINISHED, 1) } break
#endif
  od
}
