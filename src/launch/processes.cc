// Ranks as processes: fork, watch, end together.
#include "launch/processes.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "launch/tcp_exchange.h"
#include "launch/verdict.h"

namespace slipstream {

namespace {

constexpr int kPollMs = 100;

// One forked rank, as its parent sees it. The child writes its Status into the pipe and exits; the
// pipe's end of file tells that it is gone, however it went.
struct Child {
  int rank = 0;
  pid_t pid = -1;
  UniqueFd pipe;
  std::string bytes;
  bool has_ended = false;
  bool was_killed_by_us = false;
  Status outcome;
  int end_order = 0;
};

// True when this process has made a CUDA context or is about to: cuCtxGetDevice() answers "not
// initialized" (3) before cuInit(), and the driver is not even loaded before the first CUDA call.
bool cuda_is_in_use() {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return false;
  constexpr int kNotInitialized = 3;
  const auto get_device = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuCtxGetDevice"));
  int device = 0;
  const bool in_use = get_device != nullptr && get_device(&device) != kNotInitialized;
  dlclose(driver);
  return in_use;
}

Status death_of(int rank, std::string how) {
  StatusDetail detail{.what = fmt::format("rank {}", rank),
                      .observed = std::move(how),
                      .expected = "to finish its work",
                      .hint = "its own output says why"};
  detail.culprit_rank = rank;
  return Status(StatusCode::kPeerFailed, Subsystem::kLaunch, std::move(detail));
}

Status outcome_of(const Child& child, int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int signal_number = WTERMSIG(wait_status);
    return death_of(child.rank, fmt::format("killed by signal {} ({})", signal_number,
                                            strsignal(signal_number)));
  }
  if (!child.bytes.empty()) return with_culprit(unpack_status(child.bytes), child.rank);
  return death_of(child.rank, fmt::format("exited with code {} before its work was done",
                                          WEXITSTATUS(wait_status)));
}

// Never returns to the caller of launch_processes(): the child's stack above is the parent's copy.
[[noreturn]] void run_child(int rank, const ProcessOptions& options,
                            const TcpExchangeAddress& address, pid_t parent, int pipe,
                            const RankBody& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before prctl()
  Result<Exchange> exchange = join_tcp_exchange(address, rank, options.num_ranks, options.timeout);
  const Status status = exchange.is_ok()
                            ? body(RankContext{rank, options.num_ranks, rank, exchange.value()})
                            : exchange.status();
  std::fflush(nullptr);
  const std::string bytes = pack_status(status);
  // Shorter than PIPE_BUF, or the parent is reading: one write does.
  const ssize_t written = write(pipe, bytes.data(), bytes.size());
  _exit(status.is_ok() && written == static_cast<ssize_t>(bytes.size()) ? 0 : 1);
}

class Supervisor {
 public:
  explicit Supervisor(const ProcessOptions& options) : options_(options) {}
  ~Supervisor();

  Status start(const RankBody& body);
  Status wait_for_all();

 private:
  Status fork_all(const TcpExchangeAddress& address, const RankBody& body);
  void read_from(Child& child);
  void reap(Child& child);
  void escalate();
  bool is_done() const;
  Status verdict() const;

  const ProcessOptions& options_;
  std::vector<Child> children_;
  std::unique_ptr<TcpExchangeServer> server_;
  int num_ended_ = 0;
  std::optional<Deadline> next_signal_at_;
  int next_signal_ = SIGTERM;
};

Supervisor::~Supervisor() {
  for (Child& child : children_) {
    if (child.has_ended) continue;
    kill(child.pid, SIGKILL);
    waitpid(child.pid, nullptr, 0);
  }
}

Status Supervisor::start(const RankBody& body) {
  TcpExchangeAddress address;
  address.first_port = options_.port;
  std::random_device random;
  address.group_token = (std::uint64_t{random()} << 32) | random();
  // The socket listens before the fork, so children can connect at once; the server's thread starts
  // after it, so that nobody forks with a thread running.
  Result<Listener> listener = listen_first_free(address);
  if (!listener.is_ok()) return listener.status();
  address.first_port = listener.value().bound_port;
  if (Status s = fork_all(address, body); !s.is_ok()) return s;
  auto server = TcpExchangeServer::start(std::move(listener).value(), options_.num_ranks,
                                         address.group_token);
  if (!server.is_ok()) return server.status();
  server_ = std::move(server).value();
  return Status::ok();
}

Status Supervisor::fork_all(const TcpExchangeAddress& address, const RankBody& body) {
  std::fflush(nullptr);  // or every child would print what is still in the buffers
  const pid_t parent = getpid();
  for (int rank = 0; rank < options_.num_ranks; ++rank) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return socket_error("pipe", errno, {});
    UniqueFd read_end(ends[0]);
    fcntl(read_end.get(), F_SETFL, O_NONBLOCK);
    UniqueFd write_end(ends[1]);
    const pid_t pid = fork();
    if (pid < 0) return socket_error(fmt::format("fork of rank {}", rank), errno, {});
    if (pid == 0) {
      for (Child& sibling : children_) sibling.pipe.reset();
      run_child(rank, options_, address, parent, write_end.get(), body);
    }
    Child child;
    child.rank = rank;
    child.pid = pid;
    child.pipe = std::move(read_end);
    children_.push_back(std::move(child));
  }
  return Status::ok();
}

// Without blocking: the pipe's read end is non-blocking.
void Supervisor::read_from(Child& child) {
  char buffer[4096];
  ssize_t received = 0;
  while ((received = read(child.pipe.get(), buffer, sizeof(buffer))) > 0)
    child.bytes.append(buffer, static_cast<std::size_t>(received));
}

void Supervisor::reap(Child& child) {
  int wait_status = 0;
  if (waitpid(child.pid, &wait_status, WNOHANG) != child.pid) return;
  read_from(child);
  child.pipe.reset();
  child.has_ended = true;
  child.end_order = num_ended_++;
  child.outcome = outcome_of(child, wait_status);
  if (!child.outcome.is_ok() && !next_signal_at_) next_signal_at_ = deadline_after(options_.grace);
}

void Supervisor::escalate() {
  if (!next_signal_at_ || std::chrono::steady_clock::now() < *next_signal_at_) return;
  for (Child& child : children_) {
    if (child.has_ended) continue;
    child.was_killed_by_us = true;
    kill(child.pid, next_signal_);
  }
  next_signal_ = SIGKILL;
  next_signal_at_ = deadline_after(options_.grace);
}

bool Supervisor::is_done() const { return num_ended_ == static_cast<int>(children_.size()); }

Status Supervisor::wait_for_all() {
  while (!is_done()) {
    std::vector<pollfd> entries;
    for (const Child& child : children_)
      if (!child.has_ended) entries.push_back({child.pipe.get(), POLLIN, 0});
    // A pipe's end of file wakes this up at once, unless a grandchild holds the pipe open: so not
    // for ever. A child that has closed its pipe but still ends keeps poll() from waiting.
    poll(entries.data(), entries.size(), kPollMs);
    bool is_ending = false;
    for (Child& child : children_) {
      if (child.has_ended) continue;
      read_from(child);
      reap(child);
    }
    for (const pollfd& entry : entries) is_ending = is_ending || (entry.revents & POLLHUP) != 0;
    if (is_ending && !is_done()) usleep(1000);
    escalate();
  }
  return verdict();
}

// The cause, not a consequence. A rank that died by itself comes before ranks that complain; among
// those, one with an error of its own before ones that only report a peer.
Status Supervisor::verdict() const {
  const auto weight = [](const Child& child) {
    if (child.was_killed_by_us) return 3;
    if (child.outcome.code() != StatusCode::kPeerFailed)
      return child.outcome.is_group_error() ? 1 : 0;
    return child.outcome.culprit_rank() == child.rank ? 0 : 2;
  };
  const Child* cause = nullptr;
  for (const Child& child : children_) {
    if (child.outcome.is_ok()) continue;
    if (cause == nullptr ||
        std::pair(weight(child), child.end_order) < std::pair(weight(*cause), cause->end_order))
      cause = &child;
  }
  return cause == nullptr ? Status::ok() : cause->outcome;
}

// The same for all ranks of one torchrun job, and different for the next.
std::uint64_t token_of(const RankEnvironment& env) {
  std::string text = fmt::format("{}:{}:{}", env.master_addr, env.master_port, env.num_ranks);
  for (const char* name : {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"})
    if (const char* value = std::getenv(name)) text += fmt::format(":{}", value);
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

Status run_as_rank(const RankEnvironment& env, const ProcessOptions& options,
                   const RankBody& body) {
  TcpExchangeAddress address;
  address.host = env.master_addr;
  address.num_ports = 16;
  address.group_token = token_of(env);
  const char* agent_store = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  const bool agent_has_port = agent_store != nullptr && std::strcmp(agent_store, "True") == 0;
  address.first_port = static_cast<std::uint16_t>(
      std::min(env.master_port + (agent_has_port ? 1 : 0), 65536 - address.num_ports));
  std::unique_ptr<TcpExchangeServer> server;
  if (env.rank == 0) {
    Result<Listener> listener = listen_first_free(address);
    if (!listener.is_ok()) return listener.status();
    auto started =
        TcpExchangeServer::start(std::move(listener).value(), env.num_ranks, address.group_token);
    if (!started.is_ok()) return started.status();
    server = std::move(started).value();
  }
  Result<Exchange> exchange = join_tcp_exchange(address, env.rank, env.num_ranks, options.timeout);
  if (!exchange.is_ok()) return exchange.status();
  return body(RankContext{env.rank, env.num_ranks, env.local_rank, std::move(exchange).value()});
}

}  // namespace

Status launch_processes(const ProcessOptions& options, const RankBody& body) {
  if (Status s = check_num_ranks(options.num_ranks); !s.is_ok()) return s;
  Result<std::optional<RankEnvironment>> env = rank_environment();
  if (!env.is_ok()) return env.status();
  if (env.value()) {
    if (env.value()->num_ranks == options.num_ranks)
      return run_as_rank(*env.value(), options, body);
    return invalid_argument(Subsystem::kLaunch,
                            {.what = "number of ranks",
                             .observed = fmt::format("{}", options.num_ranks),
                             .expected = fmt::format("{}, WORLD_SIZE", env.value()->num_ranks),
                             .hint = "unset RANK and WORLD_SIZE to start without torchrun"});
  }
  if (cuda_is_in_use()) {
    return Status(StatusCode::kUnsupported, Subsystem::kLaunch,
                  {.what = "CUDA in the process that forks ranks",
                   .observed = "initialised",
                   .expected = "not yet used",
                   .hint = "fork before the first CUDA call, or use the threads launcher"});
  }
  Supervisor supervisor(options);
  if (Status s = supervisor.start(body); !s.is_ok()) return s;
  return supervisor.wait_for_all();
}

}  // namespace slipstream
