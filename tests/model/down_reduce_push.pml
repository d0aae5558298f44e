/* Kernel 2: tiles, jobs, pushes, elections, watermarks, final reduce. The last block to leave
 * ends the call and advances the epoch. */

/* ---- where a mutation leaves out a condition ------------------------------------------- */

#if MUT == JOBS_BEFORE_TILES
#define JOB_NEXT(x) JOBS_LEFT(x)
#else
#define JOB_NEXT(x) (JOBS_LEFT(x) && HEAD_READY(x))
#endif
#if MUT == PUSH_AFTER_ERROR
#define PUSHES      real
#else
#define PUSHES      (real && ok)
#endif
#if MUT == PUBLISH_AFTER_ERROR
#define MARKS       1
#elif MUT == ERROR_SKIPS_SIGNAL || MUT == ERROR_SKIPS_WAIT
#define MARKS       (ok && !rejected[x])
#else
#define MARKS       ok
#endif
#if MUT == NO_OWNER_WAIT
#define FIRST_CHUNK (ROWS(x, x, e) == 0 && !rejected[x] -> num_chunks[x] : 0)
#elif MUT == ERROR_SKIPS_WAIT
#define FIRST_CHUNK (rejected[x] -> num_chunks[x] : 0)
#else
#define FIRST_CHUNK 0
#endif
#if MUT == LAST_CHUNK_ONLY
#define AWAITED(c)  num_chunks[x] - 1
#else
#define AWAITED(c)  c
#endif
#if MUT == NOBODY_LEAVES
#define IMPATIENT   0
#elif MUT == EVERYBODY_LEAVES
#define IMPATIENT   1
#else
#define IMPATIENT   (seat >= M)
#endif
#define VERDICT_CHECK (MUT != NO_VERDICT_CHECK)
#define ADVANCE       (MUT != ELECTED_ADVANCES)

/* Tile t is that of chunk t. It needs a free chunk buffer. */
#define TILES2(x)      (rejected[x] -> 0 : num_chunks[x])
#define TILES_LEFT(x)  (next_tile2[x] < TILES2(x))
#if RING < CHUNKS
#define BUFFER_FREE(x, t) (t < RING || jobs_done[x * CHUNKS + (t) - RING] == num_jobs[x])
#define JOB_DONE(x, c) jobs_done[x * CHUNKS + (c)]++
#else
#define BUFFER_FREE(x, t) 1
#define JOB_DONE(x, c) skip
#endif
#define BUFFER(x, c)   rows[x * RING + (c) % RING]
#define HOLDS(s, c)    ((s) * 2 + (c))

/* Jobs in the order chunk, owner (peers first), row. The head is ready when its chunk's tiles
 * are done; a rejected call has none to wait for. */
#define JOBS_LEFT(x)   (next_job[x] < num_jobs[x] * num_chunks[x])
#define HEAD_CHUNK(x)  (next_job[x] / num_jobs[x])
#define HEAD_READY(x)  (rejected[x] || tiles_done[x * CHUNKS + HEAD_CHUNK(x)] == 1)
#define OWNER_IN_JOB_ORDER(x, i) NEXT(x, 1 + (i))

inline take_job() {
  c = HEAD_CHUNK(x);
  k = next_job[x] % num_jobs[x];
  next_job[x]++;
  i = 0;
  do
  :: k >= JOBS(x, OWNER_IN_JOB_ORDER(x, i), e) ->
       k = k - JOBS(x, OWNER_IN_JOB_ORDER(x, i), e); i++
  :: else -> break
  od;
  o = OWNER_IN_JOB_ORDER(x, i);
  i = 0;
  ok = !FAILED(x);
  real = ROWS(x, o, e) > 0
}

/* A call whose layer has fewer chunks than the workspace writes all of its wider piece. */
#ifdef TAINT
#define PARTIAL (dirty[x] -> GARBAGE : e)
#else
#define PARTIAL e
#endif
inline check_rows() {
  if
  :: ok -> check_read(BUFFER(x, c), HOLDS(e, c), overwrite_rows, stale_rows)
  :: else
  fi
}
inline push_row() {
  staging[ROW(o, x, k, c)] = PARTIAL;
#if CHUNKS > 1
  if
  :: num_chunks[x] == 1 -> staging[ROW(o, x, k, 1)] = PARTIAL
  :: else
  fi
#endif
}

inline check_partial(p, h) {
#ifdef TAINT
  if
  :: staging[ROW(x, p, k, h)] == GARBAGE -> dirty[x] = 1
  :: else -> check_read(staging[ROW(x, p, k, h)], e, overwrite_staging, stale_staging)
  fi
#else
  check_read(staging[ROW(x, p, k, h)], e, overwrite_staging, stale_staging)
#endif
}

inline take_row() { k = next_row[x * CHUNKS + c]; next_row[x * CHUNKS + c]++ }
inline reduce_row() {
  for (i : 0 .. W - 1) {
    check_partial(PEER(x, i), c);
#if CHUNKS > 1
    if
    :: num_chunks[x] == 1 -> check_partial(PEER(x, i), 1)
    :: else
    fi
#endif
  };
  i = 0;
  k = 0
}

/* The call is over: what it says must be true. */
inline check_verdict() {
  if
  :: !FAILED(x) ->
       lost_row = next_row[x * CHUNKS] != ROWS(x, x, e) ||
                  next_row[x * CHUNKS + num_chunks[x] - 1] != ROWS(x, x, e);
       assert(!lost_row);
#ifdef TAINT
       overwrite_reported_good = dirty[x];
       assert(!overwrite_reported_good)
#endif
  :: else
  fi
}

#if TIMEOUTS
/* The plan seeds these again, and nothing looks at them before: so that a call that failed
 * half-way leaves the same state as one that failed elsewhere. */
inline forget_call() {
  next_token[x] = 0; next_tile1[x] = 0; next_tile2[x] = 0; next_job[x] = 0; next_seat[x] = 0;
  gate[x] = 0; acts[x] = 0; num_jobs[x] = 0; num_chunks[x] = 0; rejected[x] = 0;
  for (i : 0 .. W - 1) { gathered[x * W + i] = 0 };
  for (i : 0 .. RING - 1) { rows[x * RING + i] = 0 };
  for (i : 0 .. CHUNKS - 1) { next_row[x * CHUNKS + i] = 0; tiles_done[x * CHUNKS + i] = 0 };
  for (i : 0 .. W * CHUNKS - 1) { arrived[MARK(x, 0, 0) + i] = 0 };
#if RING < CHUNKS
  for (i : 0 .. CHUNKS - 1) { jobs_done[x * CHUNKS + i] = 0 };
#endif
  i = 0
}
#endif

/* The last block to leave ends the call. Its verdict comes after the call's last read of a
 * peer's memory: a peer that failed has said so before its own call ended, hence before
 * anything that was read may be overwritten. */
inline leave() {
  num_left[x]++;
  last = num_left[x] == NB;
#if TIMEOUTS
  alarm = last && !failed[x] && VERDICT_CHECK && PEER_FAILED(x);
  REACHED(W_VERDICT_CHECK, alarm);
#if defined(COARSE) && W == 2
  if
  :: alarm -> failed[x] = 1; status[SLOT(x, NEXT(x, 1))] = GEN(stamp[x]); alarm = 0
  :: else
  fi;
#endif
#endif
  end_call()
}
#if TIMEOUTS
#define ENDS (last && !alarm)
#else
#define ENDS last
#endif
inline end_call() {
  if
  :: ENDS ->
       check_verdict();
       REACHED(W_AHEAD, published[SLOT(NEXT(x, 1), x)] > e);
#if TIMEOUTS
       REACHED(W_FAILED_BESIDE_GOOD, !failed[x] && failed[NEXT(x, 1)] && stamp[NEXT(x, 1)] == e);
#endif
       num_left[x] = 0;
       ticket[x] = 0;
       FORGET_RESIDENTS(residents2);
       stamp[x] = stamp[x] + ADVANCE;
#if TIMEOUTS
       forget_call();
#endif
       NEXT_PHASE(x, IDLE)
  :: else
  fi;
  if
  :: ENDS || !last -> GIVE_SLOT(x); e = 0; c = 0; seat = 0; ok = 0; last = 0
  :: else
  fi
}
#if TIMEOUTS
#define ALARM \
  ; \
  if \
  :: alarm -> fail(); d_step { alarm = 0; end_call() } \
  :: !alarm \
  fi
#else
#define ALARM
#endif
#define AWAITS (ok && c < num_chunks[x])
#define DONE_HERE ((!ok || c >= num_chunks[x]) && STORES_LANDED)

/* ---- how a partial row gets to its owner ------------------------------------------------
 *
 * Complete, then arrive: so a push is one step, where its store lands. ASYNC keeps the two
 * apart: the store is issued, the block's copy engine lands it, the block waits for that. */
#ifdef ASYNC
byte store_to[NX * NB], store_what[NX * NB];
#define IN_FLIGHT store_what[x * NB + b]
inline push() {
  d_step {
    IN_FLIGHT == 0 ->                 /* a queue of one */
    check_rows();
    store_to[x * NB + b] = ROW(o, x, k, 0);
    IN_FLIGHT = e;
    REACHED(W_STORE_IN_FLIGHT, store_what[x * NB + 1 - b] != 0)
  };
#if MUT != NO_COMPLETION_WAIT
  IN_FLIGHT == 0
#endif
}
proctype copy_engine(byte x; byte b) {
end_of_stores:
  do
  :: d_step { IN_FLIGHT != 0 -> staging[store_to[x * NB + b]] = IN_FLIGHT;
              store_to[x * NB + b] = 0; IN_FLIGHT = 0 }
  od
}
#define STORES_LANDED (IN_FLIGHT == 0)
#else
inline push() { d_step { check_rows(); push_row() } }
#define STORES_LANDED 1
#endif

inline arrive() {
#if WIT == W_SPLIT_ELECTION
  REACHED(W_SPLIT_ELECTION, x == 0 && arrived[MARK(x, RANK(o), c)] == 1 && seen == 2 - b);
  seen = (x == 0 -> b + 1 : seen);
#endif
  arrived[MARK(x, RANK(o), c)]++;
  JOB_DONE(x, c);
  last = arrived[MARK(x, RANK(o), c)] == ELECTION(x, o, e);
  ok = !FAILED(x)
}
inline mark() {
  watermark[MARK(x, o, c)] = e;
  REACHED(W_NULL_JOB, !real && !rejected[x]);
#if MUT == ELECTED_ADVANCES
  stamp[x] = stamp[x] + (o == x && c == num_chunks[x] - 1)
#endif
}
inline forget_job() { c = 0; o = 0; k = 0; ok = 0; real = 0; last = 0 }

/* A ready job before the next tile; without either, wait for the tiles of other blocks. */
inline do_job() {
#ifdef FINE
  d_step { JOB_NEXT(x) -> take_job() };
#if MUT == JOBS_BEFORE_TILES
  rejected[x] || tiles_done[x * CHUNKS + c] == 1;
#endif
  if
  :: PUSHES -> push()
  :: else
  fi;
  d_step { arrive() };
  if
  :: d_step { last && MARKS -> mark(); forget_job() }
  :: d_step { !(last && MARKS) -> forget_job() }
  fi
#else
  d_step {
    JOB_NEXT(x) -> take_job();
    if
    :: PUSHES -> check_rows(); push_row()
    :: else
    fi
  };
  d_step {
    arrive();
    if
    :: last && MARKS -> mark()
    :: else
    fi;
    forget_job()
  }
#endif
}

#define TILE_NEXT(x) \
  (JOBS_LEFT(x) && !HEAD_READY(x) && TILES_LEFT(x) && BUFFER_FREE(x, next_tile2[x]))
inline take_tile() { t = next_tile2[x]; next_tile2[x]++ }
inline finish_tile() { BUFFER(x, t) = HOLDS(e, t); tiles_done[x * CHUNKS + t]++; t = 0 }
inline take_seat() { seat = next_seat[x]; next_seat[x]++; c = FIRST_CHUNK; ok = 1 }
#define START2 (phase[x] == K2 && call[x] == mine && MY_TURN(x, b) && CAN_START(x))
inline start2() {
  ON_START(x);
  ticket[x]++;
  mine = 1 - mine;
  e = stamp[x];
  REACHED(W_LONE_BLOCK, num_left[x] == 1);
#ifdef EARLY_TRIGGER
  TRIGGER(x)
#endif
}
inline reduce_chunk() {
  do
  :: next_row[x * CHUNKS + c] < ROWS(x, x, e) -> take_row(); reduce_row()
  :: else -> break
  od;
  k = 0
}

#ifndef COARSE
proctype down_reduce_push(byte x; byte b) {
  byte e, c, o, k, i, t, seat;
  bit mine = 1;
  bit ok, real, last;
#if TIMEOUTS
  bit alarm;
#endif

end_of_kernel:
  do
  ::
  BECOME_RESIDENT(K2_LAUNCHED(x), residents2)
  d_step { START2 -> start2() };

  do
  :: do_job()
  :: d_step { TILE_NEXT(x) -> take_tile() }; d_step { finish_tile() }
#if WIT == W_RING_FULL
  :: d_step { JOBS_LEFT(x) && !HEAD_READY(x) && TILES_LEFT(x) && !BUFFER_FREE(x, next_tile2[x]) ->
              REACHED(W_RING_FULL, 1) }
#endif
  :: d_step { !JOBS_LEFT(x) -> take_seat() } break
  od;

  /* Final reduce. The first M seats wait as long as it takes. The other blocks may run out of
   * patience and leave: whoever holds a seat does their work. */
  do
#ifdef FINE
  :: d_step { AWAITS && ALL_MARKED(x, AWAITED(c), e) -> skip };
     do
     :: d_step { next_row[x * CHUNKS + c] < ROWS(x, x, e) -> take_row() }; d_step { reduce_row() }
     :: d_step { next_row[x * CHUNKS + c] >= ROWS(x, x, e) -> c++ } break
     od
#else
  :: d_step { AWAITS && ALL_MARKED(x, AWAITED(c), e) -> reduce_chunk(); c++ }
#endif
  :: d_step { AWAITS && !ALL_MARKED(x, AWAITED(c), e) && IMPATIENT -> ok = 0;
              REACHED(W_EARLY_LEAVER, 1) }
#if TIMEOUTS
  OR_ELSE(AWAITS && GIVES_UP(ALL_MARKED(x, AWAITED(c), e)), give_up(), skip, )
#endif
#ifdef PDL
  /* Only now may the next call's kernel 0 become resident: nothing here waits for a remote
   * rank any more, so this instance never holds more than M slots for one. */
  :: d_step { DONE_HERE -> LATE_TRIGGER(x) }; d_step { leave() }; break
#else
  :: d_step { DONE_HERE -> leave() } break
#endif
  od

ALARM
  od
}
#endif
