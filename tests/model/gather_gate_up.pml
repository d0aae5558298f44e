/* Kernel 1: the first arrival pulls the peers' tokens and opens the gate, then joins the GEMM;
 * the others compute. Published data only: kernel 0 has waited for every rank, so no block here
 * waits for a remote one. Next: down_reduce_push.pml. */

/* One unit of work per owner, one's own tokens first. Owners without rows are not pulled. */
#define OWNER_IN_PULL_ORDER(x, i) NEXT(x, i)
inline take_owner() {
  do
  :: next_token[x] < W && ROWS(x, OWNER_IN_PULL_ORDER(x, next_token[x]), e) == 0 ->
       next_token[x]++
  :: else -> break
  od;
  if
  :: next_token[x] < W -> o = OWNER_IN_PULL_ORDER(x, next_token[x]); next_token[x]++
  :: else -> o = NX      /* none left */
  fi
}

/* The gate's counter is full when every owner with rows has arrived (slack: owners without). */
#if W == 2
#define OWNERS_WITH_ROWS(x, s) ((ROWS(x, PEER(x, 0), s) > 0) + (ROWS(x, PEER(x, 1), s) > 0))
#else
#define OWNERS_WITH_ROWS(x, s) ((ROWS(x, PEER(x, 0), s) > 0) + (ROWS(x, PEER(x, 1), s) > 0) + \
                                (ROWS(x, PEER(x, 2), s) > 0))
#endif

/* Published before this kernel may start: kernel 0 has waited. Else the wait would be here, and
 * with it every block that waits at the gate. */
#if MUT == KERNEL1_WAITS
#define PULLS(x) (o < NX && !FAILED(x) && ALL_PUBLISHED(x, e))
#else
#define PULLS(x) (o < NX && !FAILED(x))
#endif

/* A bulk copy is one step, at its end: whatever overwrites the source before is still seen. */
inline pull() {
#ifdef TAINT
  dirty[x] = dirty[x] || tokens[o] != e;
#else
  check_read(tokens[o], e, overwrite_tokens, stale_tokens);
#endif
  gathered[x * W + RANK(o)] = e;
#if WIT == W_COMM_COMPUTES
  pulled = 1
#else
#define pulled 0
#endif
}

/* One GEMM tile: reads every pulled row. Past a gate that an error opened it computes garbage. */
inline compute_tile1() {
  if
  :: ok ->
       for (i : 0 .. W - 1) {
         stale_gathered = ROWS(x, PEER(x, i), e) > 0 && gathered[x * W + i] != e;
         assert(!stale_gathered)
       };
       i = 0;
       acts[x] = (acts[x] == GARBAGE -> GARBAGE : e)
  :: else -> acts[x] = GARBAGE
  fi
}

#if MUT == ROLES_BY_INDEX
#define COMMUNICATES (b == 0)
#else
#define COMMUNICATES (ticket[x] == 0)
#endif
inline start1() {
  ON_START(x);
  mine = 1 - mine;
  e = stamp[x];
  REACHED(W_BOTH_INSTANCES, INSTANCES > 1 && ticket[x] == 0 && !ROOM(x));
#if MUT == PDL_TAKES_EARLY
  o = (ticket[x] == 0 -> o : NX);
#else
  if
  :: COMMUNICATES -> take_owner()
  :: else
  fi;
#endif
  ticket[x]++;
  TRIGGER(x)
}
#define START1 (phase[x] == K1 && call[x] == mine && MY_TURN(x, b) && CAN_START(x))
#define TILE1_LEFT (!rejected[x] && next_tile1[x] < TILES1)
#define GATE_FULL (gate[x] == OWNERS_WITH_ROWS(x, e))

inline leave1() {
  num_left[x]++;
  GIVE_SLOT(x);
  if
  :: num_left[x] == NB -> num_left[x] = 0; ticket[x] = 0; FORGET_RESIDENTS(residents1);
                            NEXT_PHASE(x, K2)
  :: else
  fi;
  e = 0
}

#ifndef COARSE
proctype gather_gate_up(byte x; byte b) {
  byte e, i;
  byte o = NX;                     /* the owner to pull next; NX: none */
  bit mine = 1;                    /* the value of call[x] in the call that is this block's next */
  bit ok = 1;
#if WIT == W_COMM_COMPUTES
  bit pulled;
#endif

end_of_kernel:
  do
  ::
  BECOME_RESIDENT(K1_LAUNCHED(x), residents1)
#if MUT == PDL_TAKES_EARLY
  d_step { e = stamp[x]; take_owner() };
#endif
  d_step { START1 -> start1() };

  /* Communication role: pull, arrive, take the next; this block alone uses the dispenser. */
  do
#if MUT == EARLY_ARRIVAL
  :: d_step { o < NX -> gate[x]++ }; d_step { pull(); take_owner() }
#else
#ifdef FINE
  :: d_step { PULLS(x) -> pull() }; d_step { gate[x]++; take_owner() }
#else
  :: d_step { PULLS(x) -> pull(); gate[x]++; take_owner() }
#endif
#endif
  :: d_step { o < NX && FAILED(x) -> o = NX }      /* the others find the gate open */

  /* Compute role: everybody, in the end. */
  :: d_step { o == NX && TILE1_LEFT -> next_tile1[x]++; REACHED(W_COMM_COMPUTES, pulled) };
     if
     :: d_step { GATE_FULL -> compute_tile1() }
#if TIMEOUTS
     OR_ELSE(GATE_GIVES_UP(GATE_FULL), give_up_gate(), compute_tile1(); ok = 1, )
#endif
     fi
  :: d_step { o == NX && !TILE1_LEFT -> leave1() } break
  od
  od
}
#endif
