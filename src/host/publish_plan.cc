#include "host/publish_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "schedule/host_builder.h"

namespace slipstream::host {

using protocol::mutated;
using protocol::Mutation;
using protocol::SpinContext;
using protocol::SpinResult;

namespace {

void publish_to_all(const SpinContext& spin) {
  for (std::int32_t peer = 0; peer < spin.num_ranks(); ++peer) protocol::publish_inputs(spin, peer);
}

// Memory that is written in place stays where it is.
void copy_unless_in_place(void* target, const void* source, std::int64_t num_bytes) {
  if (target != source && num_bytes > 0)
    std::memcpy(target, source, static_cast<std::size_t>(num_bytes));
}

void copy_tokens(const TensorView& tokens, std::byte* target) {
  const std::int64_t element_bytes = dtype_bytes(tokens.dtype);
  const auto* source = static_cast<const std::byte*>(tokens.data);
  if (source == target) return;
  for (std::int64_t row = 0; row < tokens.rows; ++row) {
    std::memcpy(target + row * tokens.cols * element_bytes,
                source + row * tokens.row_stride * element_bytes,
                static_cast<std::size_t>(tokens.cols * element_bytes));
  }
}

// Compares all ranks with rank 0, so that every rank comes to the same result.
Status check_signatures(const HostCall& call) {
  const std::int64_t* first = call.rank.peers.region(0).signature;
  for (std::int32_t peer = 1; peer < call.num_ranks(); ++peer) {
    const std::int64_t* other = call.rank.peers.region(peer).signature;
    const std::int32_t field = first_difference(other, first);
    if (field >= 0) return signature_mismatch(field, peer, other[field], first[field]);
  }
  return Status::ok();
}

Status invalid_ids(const HostCall& call) {
  const std::int32_t topk = call.layer.problem.topk;
  const ScheduleCounts& counts = *call.schedule.counts;
  const std::int32_t pair = counts.first_invalid_pair;
  const std::int32_t token = pair / topk;
  const std::int32_t owner = owner_of_token(call.schedule, token);
  return Status(
      StatusCode::kInvalidRouting, Subsystem::kRouting,
      {.what = fmt::format("topk_ids[{}][{}] of rank {}",
                           token - call.schedule.owner_token_begin[owner], pair % topk, owner),
       .observed = fmt::format("{}", call.rank.topk_ids[static_cast<std::size_t>(pair)]),
       .expected = fmt::format("0..{} or -1", call.layer.problem.num_experts - 1),
       .hint =
           fmt::format("{} ids are invalid; mask padded tokens with -1", counts.num_invalid_ids),
       .culprit_rank = owner});
}

// All ranks' routing behind each other, in memory of our own: jobs read the weights until the
// call's end, and one visit to a peer is enough.
std::vector<std::int32_t> collect_routing(HostCall& call) {
  const std::int64_t topk = call.layer.problem.topk;
  std::vector<std::int32_t> tokens_per_rank;
  call.rank.topk_ids.clear();
  call.rank.topk_weights.clear();
  for (std::int32_t peer = 0; peer < call.num_ranks(); ++peer) {
    const Region region = call.rank.peers.region(peer);
    const std::int64_t num_pairs = region.header->num_tokens * topk;
    tokens_per_rank.push_back(region.header->num_tokens);
    call.rank.topk_ids.insert(call.rank.topk_ids.end(), region.topk_ids,
                              region.topk_ids + num_pairs);
    call.rank.topk_weights.insert(call.rank.topk_weights.end(), region.topk_weights,
                                  region.topk_weights + num_pairs);
  }
  return tokens_per_rank;
}

// Counters of this call. The launch boundary orders the seeds before the first arrival.
void seed(HostCall& call) {
  const LocalShape& shape = call.shape;
  for (std::int64_t tile = 0; tile < shape.num_tiles; ++tile) {
    call.buffers.token_gates[tile].relaxed_seed(
        static_cast<std::uint32_t>(call.schedule.slack[tile]));
  }
  const std::int64_t num_done = shape.num_chunks * (shape.num_tiles + 1);
  for (std::int64_t i = 0; i < num_done; ++i) call.buffers.tile_done[i].relaxed_seed(0);
  for (std::int64_t i = 0; i < shape.num_ranks * shape.num_chunks; ++i)
    call.buffers.elections[i].relaxed_seed();
  for (protocol::Dispenser* dispenser :
       {&call.pulls, &call.gate_up_tiles, &call.down_tiles, &call.jobs, &call.pieces}) {
    dispenser->relaxed_seed();
  }
  protocol::Endpoint& endpoint = call.rank.endpoint;
  endpoint.token_gates = call.buffers.token_gates;
  endpoint.num_token_gates = shape.num_tiles;
  endpoint.tile_done = call.buffers.tile_done;
  endpoint.num_tile_done = num_done;
}

}  // namespace

void publish_inputs(HostCall& call, const SpinContext& spin) {
  // After a group error a peer may still be reading what we published before it.
  if (spin.failed()) return;
  if (mutated(Mutation::kRoleEarlyPublish)) publish_to_all(spin);
  // Ours to overwrite: the last call's final reduce saw every peer's watermarks, and a peer writes
  // those after it has read everything here.
  const Region own = call.rank.peers.own();
  const RoutingView& routing = call.input.routing;
  const std::int64_t num_pairs = std::int64_t{routing.num_tokens} * call.layer.problem.topk;
  copy_tokens(call.input.tokens, own.tokens);
  copy_unless_in_place(own.topk_ids, routing.topk_ids,
                       num_pairs * std::int64_t{sizeof(std::int32_t)});
  copy_unless_in_place(own.topk_weights, routing.topk_weights,
                       num_pairs * std::int64_t{sizeof(float)});
  own.header->num_tokens = routing.num_tokens;
  std::memcpy(own.signature, call.layer.signature.values, sizeof(call.layer.signature.values));
  if (!mutated(Mutation::kRoleEarlyPublish)) publish_to_all(spin);
}

void plan(HostCall& call, const SpinContext& spin) {
  for (std::int32_t peer = 0; peer < call.num_ranks(); ++peer)
    if (protocol::wait_inputs(spin, peer) != SpinResult::kReady) return;

  // Only ranks that agree on the shape can read each other's routing.
  call.call_error = check_signatures(call);
  if (call.call_error.is_ok()) {
    try {
      const std::vector<std::int32_t> tokens_per_rank = collect_routing(call);
      call.rank.schedule =
          build_on_host(call.layer.schedule_shape, tokens_per_rank, call.rank.topk_ids);
    } catch (const std::bad_alloc&) {
      protocol::WaitReport report;
      report.failure = {spin.tag.generation, spin.rank(), protocol::FailureReason::kBackendError};
      report.tag = spin.tag;
      report.rank = spin.rank();
      spin.fail(report);
      return;
    }
    call.schedule = call.rank.schedule.view();
    if (call.schedule.counts->num_invalid_ids > 0) call.call_error = invalid_ids(call);
  }
  if (!call.call_error.is_ok()) {
    for (std::int32_t peer = 0; peer < call.num_ranks(); ++peer)
      protocol::publish_rejection(spin, peer);
    return;
  }
  call.shape = local_shape(call.layer, *call.schedule.counts, call.num_blocks);
  call.buffers = local_buffers_at(call.rank.local.get(), call.shape);
  seed(call);
  call.is_accepted = true;
}

}  // namespace slipstream::host
