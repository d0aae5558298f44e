/* Signals, bounded waits, group errors and residency. Inlines use the caller's locals
 * x (rank) and ok. Included by slipstream.pml; next: publish_plan.pml. */

/* ---- slot signal ----------------------------------------------------------------------- */

/* A slot satisfies a wait for `want` if it is of the same generation and not behind. */
#if MUT == NO_EPOCH_IN_SLOT
#define REACHES(slot, want) (slot > 0)
#elif MUT == NO_GENERATION
#define REACHES(slot, want) (EPOCH(slot) >= EPOCH(want))
#else
#define REACHES(slot, want) (slot >= want && GEN(slot) == GEN(want))
#endif

/* Slots of all writers, as one wait sees them: they only grow, so the order of looking is free. */
#if W == 2
#define ALL_PUBLISHED(x, s) \
  (REACHES(published[SLOT(PEER(x, 1 - RANK(x)), x)], s))
#define ALL_MARKED(x, c, s) \
  (REACHES(watermark[MARK(PEER(x, 0), x, c)], s) && REACHES(watermark[MARK(PEER(x, 1), x, c)], s))
#define PEER_FAILED(x) (status[SLOT(PEER(x, 1 - RANK(x)), x)] == GEN(stamp[x]))
#define ALL_DRAINED(x) (drained[SLOT(PEER(x, 1 - RANK(x)), x)] >= GEN(stamp[x]))
#else
#define PUBLISHED(p, x, s) (p == RANK(x) || REACHES(published[SLOT(PEER(x, p), x)], s))
#define ALL_PUBLISHED(x, s) (PUBLISHED(0, x, s) && PUBLISHED(1, x, s) && PUBLISHED(2, x, s))
#define ALL_MARKED(x, c, s) \
  (REACHES(watermark[MARK(PEER(x, 0), x, c)], s) && \
   REACHES(watermark[MARK(PEER(x, 1), x, c)], s) && REACHES(watermark[MARK(PEER(x, 2), x, c)], s))
#define SAYS_FAILED(p, x) (status[SLOT(PEER(x, p), x)] == GEN(stamp[x]))
#define PEER_FAILED(x) (SAYS_FAILED(0, x) || SAYS_FAILED(1, x) || SAYS_FAILED(2, x))
#define DRAINED(p, x) (p == RANK(x) || drained[SLOT(PEER(x, p), x)] >= GEN(stamp[x]))
#define ALL_DRAINED(x) (DRAINED(0, x) && DRAINED(1, x) && DRAINED(2, x))
#endif

/* Write one's slot on every peer: W lanes, hence in any order. */
#define NEXT(x, i) PEER(x, (RANK(x) + (i)) % W)
#if W == 2
#define SIGNAL_PEERS(slots, value) d_step { slots[SLOT(x, NEXT(x, 1))] = value }
#else
#define SIGNAL_PEERS(slots, value) \
  if \
  :: d_step { slots[SLOT(x, NEXT(x, 1))] = value }; d_step { slots[SLOT(x, NEXT(x, 2))] = value } \
  :: d_step { slots[SLOT(x, NEXT(x, 2))] = value }; d_step { slots[SLOT(x, NEXT(x, 1))] = value } \
  fi
#endif

/* What a read found against what the call must find: newer is overwritten, older is stale. */
inline check_read(found, want, overwritten, stale) {
  overwritten = found > want;
  assert(!overwritten);
  stale = found < want;
  assert(!stale)
}

/* ---- bounded wait and group error --------------------------------------------------------
 *
 * The condition wins over everything; else one's own sticky error, a peer's status, or the
 * deadline ends the wait. The deadline is a choice that the model may take at any wait of
 * generation 1 that is not satisfied, TIMEOUTS times in all; when they are used up, whoever
 * still waits for ever is a hang. */
#if TIMEOUTS
#ifdef LATE_RANK
#define LATE(x) (timeouts > 0 && GEN(stamp[x]) == 1 && RANK(x) == LATE_RANK)
#else
#define LATE(x) (timeouts > 0 && GEN(stamp[x]) == 1)
#endif
#if MUT == NO_STATUS_EXCHANGE
#define TOLD(x) failed[x]
#else
#define TOLD(x) (failed[x] || PEER_FAILED(x))
#endif
#define GIVES_UP(condition) (!(condition) && (TOLD(x) || LATE(x)))
inline give_up() {
  REACHED(W_TOLD_BY_STATUS, !failed[x] && TOLD(x));
  if
  :: TOLD(x)
  :: else -> timeouts--
  fi;
  ok = 0
}

/* A gate on one's own GPU: no look at the peers, somebody of this rank does that. */
#if MUT == GATES_STAY_SHUT
#define GATE_GIVES_UP(condition) (!(condition) && !failed[x] && LATE(x))
#else
#define GATE_GIVES_UP(condition) (!(condition) && (failed[x] || LATE(x)))
#endif
inline give_up_gate() {
  if
  :: failed[x]
  :: else -> timeouts--
  fi;
  ok = 0
}

/* The first block of the rank to fail is the single writer of the rank's status slots. It
 * leaves its kernel after them, so they precede the end of the failed call. */
#if MUT == NO_STATUS_EXCHANGE
inline tell_peers() { skip }
#else
#define tell_peers() SIGNAL_PEERS(status, GEN(stamp[x]))
#endif
inline fail() {
  if
  :: d_step { failed[x] -> skip }
  :: d_step { !failed[x] -> failed[x] = 1 }; tell_peers()
  fi
}

/* The alternatives of a wait that gives up: on `condition`, spend the deadline if that is why,
 * fail, do `what` in a step, go on. COARSE joins the flag with the first slot written, since no
 * other rank sees the flag and the rank's other blocks may come later just as well. */
#if !defined(COARSE) || MUT == NO_STATUS_EXCHANGE
#define OR_ELSE(condition, spend, what, next) \
  :: d_step { condition -> spend }; fail(); d_step { what } next
#elif W == 2
#define OR_ELSE(condition, spend, what, next) \
  :: d_step { condition && failed[x] -> spend; what } next \
  :: d_step { condition && !failed[x] -> \
              spend; failed[x] = 1; status[SLOT(x, NEXT(x, 1))] = GEN(stamp[x]); what } next
#else
#define OR_ELSE(condition, spend, what, next) \
  :: d_step { condition && failed[x] -> spend; what } next \
  :: d_step { condition && !failed[x] -> \
              spend; failed[x] = 1; status[SLOT(x, NEXT(x, 1))] = GEN(stamp[x]) }; \
     d_step { status[SLOT(x, NEXT(x, 2))] = GEN(stamp[x]); what } next \
  :: d_step { condition && !failed[x] -> \
              spend; failed[x] = 1; status[SLOT(x, NEXT(x, 2))] = GEN(stamp[x]) }; \
     d_step { status[SLOT(x, NEXT(x, 1))] = GEN(stamp[x]); what } next
#endif
#define FAILED(x) failed[x]
#else
#define FAILED(x) 0
#endif

/* ---- residency ----------------------------------------------------------------------------
 *
 * A kernel's blocks may become resident when it is launched and the GPU has room; nobody says
 * in which order. With programmatic dependent launch that is as soon as every block of the
 * kernel before has triggered or left. */
#ifdef PDL
#define PLAN_LAUNCHED(x) (phase[x] == IDLE || (phase[x] == K2 && triggered[x] == NB))
#define K1_LAUNCHED(x)   (phase[x] == K1 || (phase[x] == PLAN && triggered[x] == 1))
#define K2_LAUNCHED(x)   (phase[x] == K2 || (phase[x] == K1 && triggered[x] == NB))
#define TRIGGER(x)       triggered[x]++
#ifdef EARLY_TRIGGER
#define LATE_TRIGGER(x)  skip
#else
#define LATE_TRIGGER(x)  TRIGGER(x)
#endif
#define BECOME_RESIDENT(launched, residents) \
  d_step { (launched) && call[x] == mine && residents[x] == b && ROOM(x) -> \
           residents[x]++; TAKE_SLOT(x) };
#define FORGET_RESIDENTS(residents) residents[x] = 0
#define NEXT_PHASE(x, p) phase[x] = p; triggered[x] = 0
#else
#define PLAN_LAUNCHED(x) (phase[x] == IDLE)
#define K1_LAUNCHED(x)   (phase[x] == K1)
#define K2_LAUNCHED(x)   (phase[x] == K2)
#define TRIGGER(x)       skip
#define BECOME_RESIDENT(launched, residents)
#define FORGET_RESIDENTS(residents) skip
#define NEXT_PHASE(x, p) phase[x] = p
#endif

#if SLOTS
#define ROOM(x)       (free_slots[GPU(x)] > 0)
#define TAKE_SLOT(x)  free_slots[GPU(x)]--
#define GIVE_SLOT(x)  free_slots[GPU(x)]++
#else
#define ROOM(x)       1
#define TAKE_SLOT(x)  skip
#define GIVE_SLOT(x)  skip
#endif

/* Blocks are alike but for the order in which they become resident and arrive, so it is enough
 * to look at runs in which block b comes as number b; not where a role hangs on the index. */
#if MUT == ROLES_BY_INDEX
#define MY_TURN(x, b) 1
#else
#define MY_TURN(x, b) (ticket[x] == b)
#endif

/* Without programmatic launch, to become resident and to start are one step. */
#ifdef PDL
#define CAN_START(x)  1
#define ON_START(x)   skip
#else
#define CAN_START(x)  ROOM(x)
#define ON_START(x)   TAKE_SLOT(x)
#endif
