/* Kernels 1 and 2 once more, from the same inlines, in steps as long as the other ranks allow: a
 * step begins with an access that another rank could notice and then does whatever is local to
 * the GPU, up to the next such access. It does not ask who of a rank's blocks does a thing
 * first (the other configurations do), only when its peers see it: so three ranks and two
 * instances become small enough to be searched to the end. */

#define END_IF_GONE \
  if \
  :: gone -> break \
  :: !gone \
  fi

/* Out of tokens: the next tile, or the end of the kernel. */
inline go_on1() {
#ifdef WHOLE_PULL
  do
  :: PULLS(x) -> pull(); gate[x]++; take_owner()
  :: o == NX && TILE1_LEFT && GATE_FULL -> next_tile1[x]++; compute_tile1()
  :: else -> break
  od;
#endif
  if
  :: o == NX && TILE1_LEFT -> next_tile1[x]++; holds = 1
  :: o == NX && !TILE1_LEFT -> leave1(); holds = 0; gone = 1
  :: else
  fi
}

proctype gather_gate_up(byte x; byte b) {
  byte e, i;
  byte o = NX;
  bit mine = 1;
  bit ok = 1;
  bit holds, gone;

end_of_kernel:
  do
  ::
  BECOME_RESIDENT(K1_LAUNCHED(x), residents1)
  d_step { START1 -> start1(); gone = 0; go_on1() };
  if
  :: gone
  :: !gone ->
  do
  :: d_step { PULLS(x) -> pull(); gate[x]++; take_owner(); go_on1() }; END_IF_GONE
  :: d_step { o < NX && FAILED(x) -> o = NX; go_on1() }; END_IF_GONE
  :: d_step { holds && GATE_FULL -> compute_tile1(); go_on1() }; END_IF_GONE
#if TIMEOUTS
  OR_ELSE(holds && GATE_GIVES_UP(GATE_FULL), give_up_gate(), compute_tile1(); ok = 1; go_on1(),
          ; END_IF_GONE)
#endif
  od
  fi
  od
}

inline whole_job() {
  take_job();
  if
  :: PUSHES -> check_rows(); push_row()
  :: else
  fi;
  arrive();
  if
  :: last && MARKS -> mark()
  :: else
  fi;
  forget_job()
}

/* Tiles are local work; so is to find that no job is left. */
inline go_on2() {
  do
  :: TILE_NEXT(x) -> take_tile(); finish_tile()
  :: FAILED(x) && JOB_NEXT(x) -> whole_job()       /* on garbage: no peer will notice */
#ifdef WHOLE_PUSH
  :: JOB_NEXT(x) -> whole_job()
#endif
  :: else -> break
  od;
  if
  :: !JOBS_LEFT(x) -> take_seat(); seated = 1
  :: else
  fi
}
#ifdef PDL
#define LEAVE2 done = 1
#else
#define LEAVE2 leave(); gone = 1; seated = 0
#endif

proctype down_reduce_push(byte x; byte b) {
  byte e, c, o, k, i, t, seat;
  bit mine = 1;
  bit ok, real, last, seated, gone;
#ifdef PDL
  bit done;
#endif
#if TIMEOUTS
  bit alarm;
#endif

end_of_kernel:
  do
  ::
  BECOME_RESIDENT(K2_LAUNCHED(x), residents2)
  d_step { START2 -> start2(); gone = 0; go_on2() };
  do
  :: d_step {
       !seated && JOB_NEXT(x) ->
       whole_job();
       go_on2()
     }
  :: d_step { !seated && !JOBS_LEFT(x) -> take_seat(); seated = 1 }
  :: d_step {
       seated && AWAITS && ALL_MARKED(x, AWAITED(c), e) ->
       reduce_chunk();
       c++;
       if
       :: c == num_chunks[x] -> LEAVE2
       :: else
       fi
     };
     END_IF_GONE
  :: d_step {
       seated && AWAITS && !ALL_MARKED(x, AWAITED(c), e) && IMPATIENT ->
       REACHED(W_EARLY_LEAVER, 1);
       LEAVE2
     };
     END_IF_GONE
#if TIMEOUTS
  OR_ELSE(seated && AWAITS && GIVES_UP(ALL_MARKED(x, AWAITED(c), e)),
          give_up(), LEAVE2, ; END_IF_GONE)
#endif
#if MUT == NO_OWNER_WAIT || MUT == ERROR_SKIPS_WAIT
  :: d_step { seated && c >= num_chunks[x] -> LEAVE2 }; END_IF_GONE
#endif
#ifdef PDL
  :: d_step { done -> done = 0; LATE_TRIGGER(x) }; d_step { leave(); seated = 0 }; break
#else
#endif
  od
ALARM
  od
}
