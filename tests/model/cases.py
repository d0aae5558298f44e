"""What check.py runs: configurations that must hold, events that must be reached, and mutations
that must fail. A case is data; the flags are those that slipstream.pml explains at its top."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    name: str
    flags: str            # for spin: -D flags, without the -D
    expected: tuple       # 'holds', 'reached', or the kinds of failure that are right
    what: str             # one sentence
    quick: bool = True    # part of --quick
    search: str = ""      # -A: look for hangs only, -E: for wrong data only

    def value(self, flag, default):
        for word in self.flags.split():
            key, _, value = word.partition("=")
            if key == flag:
                return int(value)
        return default

    @property
    def ranks(self):
        return self.value("W", 2)

    @property
    def epochs(self):
        calls = str(self.value("CALLS", 3))
        if self.value("TIMEOUTS", 0):
            return f"{calls}+{self.value('CALLS_AFTER_RESET', 1)}"
        return calls


TWO = "INSTANCES=2 SLOTS=2 COARSE WHOLE_PULL WHOLE_PUSH"
GROUP = "COARSE TIMEOUTS=2 CALLS=2"
THREE_GROUP = "W=3 COARSE SMALL WHOLE_PULL TIMEOUTS=1 LATE_RANK=0"

HOLDS = [
    Case("fine", "FINE CHUNKS=2", ("holds",),
         "every access a step; layers of 2 and 1 chunks; owners without rows", quick=False),
    Case("fine_1", "FINE TILES1=2", ("holds",), "the same with one chunk and two gate tiles"),
    Case("in_place", "FINE INPLACE", ("holds",), "the caller writes tokens in stream order"),
    Case("in_place_2", "INPLACE CHUNKS=2 TILES1=2", ("holds",), "likewise, two chunks"),
    Case("ring", "FINE CHUNKS=2 RING=1", ("holds",), "one chunk buffer: tiles wait for jobs"),
    Case("async_stores", "ASYNC", ("holds",), "bulk stores land by a process of their own"),
    Case("call_errors", "MIXED CHUNKS=2", ("holds",),
         "any layer on any rank, bad ids: rejected epochs between good ones"),
    Case("pdl", "FINE PDL EARLY_TRIGGER", ("holds",), "blocks resident before their dependency"),
    Case("pdl_2", "FINE PDL EARLY_TRIGGER CHUNKS=2 INPLACE", ("holds",), "likewise, two chunks, in place",
         quick=False),
    Case("group_errors", "TIMEOUTS=1 CALLS=2", ("holds",),
         "a wait runs out of time anywhere; status, sticky calls, reset, good call", quick=False),
    Case("group_errors_2", "COARSE TIMEOUTS=2 CALLS=3 CALLS_AFTER_RESET=2 CHUNKS=2", ("holds",),
         "two waits run out of time, more calls before and after the reset"),
    Case("group_errors_in_place", f"{GROUP} TAINT INPLACE CHUNKS=2", ("holds",),
         "the caller overwrites tokens behind a failed call: nobody reports wrong data as good"),
    Case("copied_without_verdict_check", f"{GROUP} CHUNKS=2 MUT=NO_VERDICT_CHECK", ("holds",),
         "who copies in kernel 0 could do without the last look at the status"),
    Case("group_and_call_errors", "COARSE TIMEOUTS=1 CALLS=2 MIXED CHUNKS=2", ("holds",),
         "a rejected call runs out of time as well"),
    Case("group_errors_pdl", "COARSE TIMEOUTS=1 CALLS=2 PDL EARLY_TRIGGER", ("holds",), "with early residents"),
    Case("lone_slot", "FINE SLOTS=1 CHUNKS=2 TILES1=2", ("holds",), "one block at a time"),
    Case("lone_slot_errors", "SLOTS=1 TIMEOUTS=1 CALLS=2", ("holds",), "and group errors"),
    Case("folded", "FINE FOLDED SLOTS=2 CHUNKS=2", ("holds",), "both ranks on one GPU, two slots"),
    Case("two_instances", TWO, ("holds",), "two instances, two slots on either GPU"),
    Case("two_instances_pdl", f"{TWO} PDL CALLS=2", ("holds",),
         "likewise, and blocks resident early", quick=False),
    Case("three_ranks", "W=3", ("holds",), "three ranks, one chunk", quick=False),
    Case("three_ranks_coarse", "W=3 COARSE INPLACE CHUNKS=2", ("holds",),
         "three ranks, 2 and 1 chunks, in place"),
    Case("three_ranks_call_errors", "W=3 COARSE WHOLE_PULL MIXED CHUNKS=2", ("holds",),
         "three ranks that may disagree", quick=False),
    Case("three_ranks_group_errors", f"{THREE_GROUP} CALLS=2", ("holds",),
         "three ranks: status, sticky calls, reset, good call", quick=False),
    Case("three_ranks_group_errors_in_place", f"{THREE_GROUP} CALLS=2 TAINT INPLACE", ("holds",),
         "likewise, in place", quick=False),
]


def witness(event, flags, what, quick=True):
    return Case(f"reach_{event.lower()}", f"{flags} WIT=W_{event}", ("reached",), what, quick)


REACHED = [
    witness("FINISHED", "CHUNKS=2", "a rank comes to its end"),
    witness("NULL_JOB", "", "a null job is elected and writes a watermark"),
    witness("REJECT_THEN_GOOD", "MIXED CHUNKS=2", "a call error, and the next call works"),
    witness("LAYER_MISMATCH", "MIXED CHUNKS=2", "ranks with different chunk counts"),
    witness("PDL_OVERLAP", "PDL EARLY_TRIGGER", "kernel 0 resident beside kernel 2 of the call before"),
    witness("EARLY_LEAVER", "", "a block runs out of patience"),
    witness("ERROR_RESET_GOOD", GROUP, "group error, reset, and the next call works"),
    witness("STICKY_CALL", GROUP, "a call launched on a failed rank"),
    witness("TOLD_BY_STATUS", GROUP, "a rank fails because a peer said so"),
    witness("VERDICT_CHECK", GROUP, "only the last leaver notices a peer's status"),
    witness("RESET_RETRIED", GROUP, "a reset runs out of time, its second try works"),
    witness("FAILED_BESIDE_GOOD", "TIMEOUTS=1 CALLS=2", "one rank fails a call that its peer finishes well"),
    witness("AHEAD", "", "a peer publishes the next call before this rank has left its own"),
    witness("COMM_COMPUTES", "FINE TILES1=2", "a communicating block joins the GEMM"),
    witness("LONE_BLOCK", "SLOTS=1", "one block does all of a kernel before the other arrives"),
    witness("STORE_IN_FLIGHT", "ASYNC", "two stores of a rank in flight at once"),
    witness("SPLIT_ELECTION", "FINE", "two blocks of a rank arrive at one election"),
    witness("RING_FULL", "FINE CHUNKS=2 RING=1", "a tile waits for a chunk buffer"),
    witness("BOTH_INSTANCES", TWO, "blocks of both instances resident on one GPU"),
]


def mutation(name, flags, expected, what, search="", suffix=""):
    return Case(f"{name.lower()}{suffix}", f"{flags} MUT={name}", expected, what, True, search)


HANG, OVERWRITE, STALE = ("hang",), ("overwrite",), ("stale",)

MUST_FAIL = [
    mutation("NO_NULL_JOB", "", HANG, "an owner without rows gets no job"),
    mutation("ELECTION_BY_TOKENS", "", HANG, "the election counts T_r, not owner_num_jobs"),
    mutation("NO_OWNER_WAIT", "", OVERWRITE, "an owner without rows does not wait for watermarks"),
    mutation("PDL_WRITES_EARLY", "PDL EARLY_TRIGGER", OVERWRITE, "kernel 0 writes tokens before its dependency"),
    mutation("PDL_READS_EPOCH", "PDL EARLY_TRIGGER", STALE, "kernel 0 reads the epoch before its dependency"),
    mutation("PDL_TAKES_EARLY", "PDL EARLY_TRIGGER", HANG, "kernel 1 takes a token before its dependency"),
    mutation("CALLER_UNORDERED", "INPLACE", OVERWRITE, "the caller's write is not stream-ordered"),
    mutation("NO_SIGNATURE_CHECK", "MIXED CHUNKS=2", HANG,
             "ranks disagree on chunks, nobody checks", "-A"),
    mutation("NO_SIGNATURE_CHECK", "MIXED CHUNKS=2", STALE,
             "ranks disagree on chunks, nobody checks", "-E", "_data"),
    mutation("REJECT_BY_LAYER", "MIXED CHUNKS=2", HANG,
             "a rejected call exchanges its own layer's chunks"),
    mutation("ERROR_SKIPS_SIGNAL", "MIXED CHUNKS=2", HANG, "a call error sends no watermarks"),
    mutation("ERROR_SKIPS_WAIT", "MIXED CHUNKS=2", OVERWRITE,
             "a call error neither sends nor awaits watermarks", "-E"),
    mutation("NO_COMPLETION_WAIT", "ASYNC", STALE, "a block arrives before its store has landed"),
    mutation("EARLY_PUBLISH", "", STALE, "published is written before the tokens"),
    mutation("EARLY_WATERMARK", "", STALE, "the first arriver is elected"),
    mutation("EARLY_ARRIVAL", "", STALE, "the gate is told before the copy is complete"),
    mutation("NO_PUBLISHED_WAIT", "", STALE, "kernel 0 does not wait for its peers"),
    mutation("LAST_CHUNK_ONLY", "FINE CHUNKS=2", STALE, "the final reduce awaits the last chunk only"),
    mutation("SLOT_RESET", "", HANG, "kernel 0 resets its slots for the new call"),
    mutation("NO_EPOCH_IN_SLOT", "", STALE, "a slot is a flag"),
    mutation("NO_GENERATION", GROUP, STALE, "a slot holds the epoch alone"),
    mutation("ELECTED_ADVANCES", "", HANG, "the elected advances the epoch", "-A"),
    mutation("ROLES_BY_INDEX", "SLOTS=1", HANG, "roles by block index, one block resident"),
    mutation("JOBS_BEFORE_TILES", "FINE SLOTS=1", HANG, "a block waits for a job, tiles are left"),
    mutation("NOBODY_LEAVES", TWO, HANG, "every block goes on waiting for the remote rank"),
    mutation("NOBODY_LEAVES", "FOLDED SLOTS=2", HANG, "likewise, with folded ranks", "", "_folded"),
    mutation("KERNEL1_WAITS", TWO, HANG, "kernel 1 awaits remote ranks, its blocks the gate"),
    Case("one_slot_for_two_instances", TWO.replace("SLOTS=2", "SLOTS=1"), HANG,
         "fewer slots than instances times M"),
    mutation("EVERYBODY_LEAVES", "", OVERWRITE, "no block keeps its seat"),
    mutation("TRIGGER_FIRST", f"{TWO} PDL CALLS=2", HANG,
             "a kernel lets its dependents in before its own remote wait"),
    mutation("GATES_STAY_SHUT", f"{GROUP} TILES1=2", HANG, "a failed communicating block opens no gate"),
    mutation("NO_STATUS_EXCHANGE", GROUP, HANG, "a failed rank tells nobody"),
    mutation("NOT_STICKY", GROUP, OVERWRITE, "the next launch forgets the error"),
    mutation("PUSH_AFTER_ERROR", GROUP, OVERWRITE, "garbage is pushed after an error"),
    mutation("PUBLISH_AFTER_ERROR", GROUP, STALE, "watermarks are written after an error"),
    mutation("NO_VERDICT_CHECK", f"{GROUP} TAINT INPLACE", OVERWRITE,
             "a call ends well without a last look at the peers' status"),
    mutation("LOCAL_RESET", GROUP, OVERWRITE, "reset waits for nobody"),
    mutation("NO_DRAIN", GROUP, OVERWRITE, "reset does not drain the rank's own stream", "-E"),
]

GROUPS = (("configurations", HOLDS), ("witnesses", REACHED), ("mutations", MUST_FAIL))
