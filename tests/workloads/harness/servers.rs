use super::{Assignment, Node, Truth, block_on, truth::vote_again_after};
use quorate::env::{BootTime, SystemWorld, World};
use quorate_testkit::{
    proxy::{Directions, Latency, Proxy},
    redis::{RedisConfig, RedisServer},
};
use quorate_tests::support::PATIENCE;
use std::time::Duration;

/// The time within which a worker reconnects to a server that was unreachable.
const RECONNECTED: Duration = Duration::from_millis(600);

/// The way in which workers reach the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    /// Directly, without a proxy.
    Direct,
    /// Through one proxy for each server, which all workers use.
    Shared,
    /// Through one proxy for each server and each of this number of workers, so that one worker can be cut off.
    PerWorker(usize),
}

/// A fault of one server, or the end of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeFault {
    Kill,
    Restart,
    /// Stops the process (SIGSTOP).
    Stop,
    /// Lets the process continue (SIGCONT).
    Resume,
    /// Deletes all data.
    Flush,
    Cut(Directions),
    /// Delays messages in each direction by the first duration, plus a random part of the second.
    Slow(Duration, Duration),
    /// Ends the faults of the network.
    Heal,
    /// Breaks every connection.
    Sever,
    /// Breaks a connection after it has passed this number of bytes of the next reply.
    CutReply(usize),
}

/// The Redis servers of a plan, with the proxies before them. Dropping this value ends all of them.
#[derive(Debug)]
pub(crate) struct Servers {
    durable: bool,
    // This field is declared before the servers, so that the proxies are dropped first.
    proxies: Vec<Vec<Proxy>>,
    network: Network,
    servers: Vec<Server>,
}

#[derive(Debug)]
struct Server {
    process: RedisServer,
    down: bool,
    stopped: bool,
    cut: bool,
    /// The time from which the server can vote, unless another fault prevents it.
    votes_from: BootTime,
}

impl Servers {
    /// Starts `count` servers. If `durable` is true, each server writes each change to an append-only file
    /// before it replies.
    ///
    /// # Panics If `redis-server` cannot be started. The message says how to install it.
    pub(crate) fn start(count: usize, durable: bool, network: Network) -> Self {
        let start = |_| {
            // The servers are in a process group of their own. So a Ctrl-C on the terminal reaches only this
            // process, which then ends the servers.
            let config = RedisConfig::new().own_process_group();
            let config = if durable { config.append_only() } else { config };
            let process = config.start().unwrap_or_else(|error| panic!("{error}"));
            Server { process, down: false, stopped: false, cut: false, votes_from: BootTime::default() }
        };
        let servers: Vec<Server> = (0..count).map(start).collect();
        let proxy = |server: &Server| Proxy::before(&server.process).expect("a port and a thread");
        let routes = match network {
            Network::Direct => 0,
            Network::Shared => 1,
            Network::PerWorker(workers) => workers,
        };
        let proxies = (0..routes).map(|_| servers.iter().map(proxy).collect()).collect();
        Self { durable, proxies, network, servers }
    }

    /// Returns the servers with the URLs over which one worker reaches them.
    pub(crate) fn nodes(&self, member: usize) -> Vec<Node> {
        let direct = self.servers.iter().map(|server| server.process.url());
        match self.network {
            Network::Direct => direct.map(|url| Node { name: url.clone(), url }).collect(),
            Network::Shared => {
                self.proxies[0].iter().map(|proxy| Node { name: proxy.url(), url: proxy.url() }).collect()
            }
            Network::PerWorker(_) => {
                let urls = self.proxies[member].iter().map(Proxy::url);
                direct.zip(urls).map(|(name, url)| Node { name, url }).collect()
            }
        }
    }

    /// Returns the servers with URLs that lead to them directly, without proxies.
    pub(crate) fn direct_nodes(&self) -> Vec<Node> {
        self.servers
            .iter()
            .map(|server| server.process.url())
            .map(|url| Node { name: url.clone(), url })
            .collect()
    }

    /// Returns the server processes.
    pub(crate) fn processes(&self) -> impl Iterator<Item = &RedisServer> {
        self.servers.iter().map(|server| &server.process)
    }

    /// Lets new servers vote at once. This is safe because no worker has ever held a lease on them.
    pub(crate) fn trust_all(assignment: &Assignment) {
        block_on(async {
            let quorum = assignment.quorum().expect("a valid configuration");
            quorum.met(PATIENCE).await;
            // On a busy machine, a server may not answer in time at first. So the request is repeated.
            let give_up = quorum.env().now() + PATIENCE;
            while let Err(error) = quorum.trust_nodes().await {
                assert!(quorum.env().now() < give_up, "{error}");
                quorum.env().sleep(Duration::from_millis(20)).await;
            }
            quorum.close().await;
        });
    }

    /// Returns for each server whether it can vote now.
    pub(crate) fn voting(&self, now: BootTime) -> Vec<bool> {
        let votes =
            |server: &Server| !(server.down || server.stopped || server.cut) && server.votes_from <= now;
        self.servers.iter().map(votes).collect()
    }

    /// Causes a fault of a server, or ends one. Returns false if the state of the server does not permit this.
    pub(crate) fn make(&mut self, node: usize, fault: NodeFault, truth: &mut Truth) -> bool {
        let (server, durable) = (&mut self.servers[node], self.durable);
        let proxy = self.proxies.first().map(|proxies| &proxies[node]);
        let proxy = || proxy.expect("a plan with network faults has proxies");
        let fits = match fault {
            NodeFault::Kill => !server.down,
            NodeFault::Restart => server.down,
            NodeFault::Stop | NodeFault::Flush => !(server.down || server.stopped),
            NodeFault::Resume => !server.down && server.stopped,
            _ => true,
        };
        if !fits {
            return false;
        }
        let mut back_after = Duration::ZERO;
        match fault {
            NodeFault::Kill => {
                if !durable {
                    truth.lost_data(node, SystemWorld.now());
                }
                server.process.kill();
                (server.down, server.stopped) = (true, false);
            }
            NodeFault::Restart => {
                server.process.restart().unwrap_or_else(|error| panic!("{error}"));
                server.down = false;
                back_after = if durable { RECONNECTED } else { vote_again_after() };
            }
            NodeFault::Stop => {
                server.process.pause();
                server.stopped = true;
            }
            NodeFault::Resume => {
                server.process.resume();
                server.stopped = false;
                back_after = RECONNECTED;
            }
            NodeFault::Flush => {
                truth.lost_data(node, SystemWorld.now());
                server.process.flushall();
                truth.lost_data(node, SystemWorld.now());
                back_after = vote_again_after();
            }
            NodeFault::Cut(directions) => {
                proxy().cut(directions);
                server.cut = true;
            }
            NodeFault::Slow(each_way, jitter) => {
                proxy().set_latency(Latency::each_way(each_way).jitter(jitter));
            }
            NodeFault::Heal => {
                proxy().heal();
                if std::mem::take(&mut server.cut) {
                    back_after = RECONNECTED;
                }
            }
            NodeFault::Sever => proxy().sever(),
            NodeFault::CutReply(bytes) => proxy().cut_reply_after(bytes),
        }
        if !back_after.is_zero() {
            server.votes_from = server.votes_from.max(SystemWorld.now() + back_after);
        }
        true
    }

    /// Ends all faults of the servers, and of the network that all workers share.
    pub(crate) fn heal_all(&mut self, truth: &mut Truth) {
        for node in 0..self.servers.len() {
            for end in [NodeFault::Heal, NodeFault::Resume, NodeFault::Restart] {
                self.make(node, end, truth);
            }
        }
    }

    /// Cuts one worker off from all servers.
    pub(crate) fn cut_off(&self, member: usize) {
        self.proxies[member].iter().for_each(|proxy| proxy.cut(Directions::Both));
    }

    /// Connects a worker that was cut off. The data that waited in the proxies then arrives.
    pub(crate) fn reconnect(&self, member: usize) {
        self.proxies[member].iter().for_each(Proxy::heal);
    }
}
