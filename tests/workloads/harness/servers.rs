use super::{
    Assignment, Machines, Node, Replacing, Split, Truth, block_on,
    server::{Server, is_far},
    truth::vote_again_after,
};
use quorate::env::{BootTime, SystemWorld, World};
use quorate_testkit::{
    machines::Machine,
    proxy::{Directions, Latency, Proxy},
    redis::RedisServer,
};
use quorate_tests::support::PATIENCE;
use std::time::Duration;

/// The time within which a worker reconnects to a server that was unreachable.
const RECONNECTED: Duration = Duration::from_millis(600);
/// The same on machines, where the packets of a new connection may be lost, and are sent again after a second.
const RECONNECTED_BY_PACKETS: Duration = Duration::from_millis(2500);

/// The way in which workers reach the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    /// Directly, without a proxy.
    Direct,
    /// Through one proxy for each server, which all workers use.
    Shared,
    /// Through one proxy for each server and each of this number of workers, so that one worker can be cut off.
    PerWorker(usize),
    /// Over a bridge, from one machine for each of this number of workers to one machine for each server.
    Machines(usize),
}

/// A fault of one server, or the end of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeFault {
    Kill,
    Restart,
    /// Restarts a killed server that keeps its data across a restart without its data.
    RestartEmpty,
    /// Stops the process (SIGSTOP).
    Stop,
    /// Lets the process continue (SIGCONT).
    Resume,
    /// Deletes all data.
    Flush,
    /// Leaves the server no memory for new keys.
    Fill,
    /// Ends `Fill`.
    Empty,
    /// Steps the wall clock, so that it differs from the machine's by this many milliseconds.
    SetClock(i64),
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
    // These fields are declared before the servers, so that the proxies are dropped first.
    proxies: Vec<Vec<Proxy>>,
    machines: Option<Machines>,
    network: Network,
    servers: Vec<Server>,
    replacing: Option<Replacing>,
}

impl Servers {
    /// Starts `count` servers. If `durable` is true, each server writes each change to an append-only file
    /// before it replies.
    ///
    /// # Panics
    /// If `redis-server` cannot be started. The message says how to install it.
    pub(crate) fn start(count: usize, durable: bool, network: Network) -> Self {
        let mut machines = match network {
            Network::Machines(workers) => Some(Machines::new(workers)),
            _ => None,
        };
        let mut start = |_| Server::start(durable, machines.as_mut().map(Machines::for_server));
        let servers: Vec<Server> = (0..count).map(&mut start).collect();
        if let Some(machines) = &mut machines {
            servers.iter().enumerate().for_each(|(node, server)| machines.connect(node, &server.process));
        }
        let proxy = |server: &Server| Proxy::before(&server.process).expect("a port and a thread");
        let routes = match network {
            Network::Direct | Network::Machines(_) => 0,
            Network::Shared => 1,
            Network::PerWorker(workers) => workers,
        };
        let proxies = (0..routes).map(|_| servers.iter().map(proxy).collect()).collect();
        Self { durable, proxies, machines, network, servers, replacing: None }
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
            Network::Machines(_) => {
                let machines = self.machines.as_ref().expect("a plan with machines");
                let node = |(node, server): (usize, &Server)| machines.node(member, node, &server.process);
                self.servers.iter().enumerate().map(node).collect()
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

    /// Returns for each server whether it can vote now, and the number of workers that can make progress. `active` says of
    /// each worker whether it runs.
    pub(crate) fn voting(&self, now: BootTime, active: &[bool]) -> (Vec<bool>, usize) {
        let votes = |server: &Server| {
            !(server.down || server.stopped || server.cut || server.full) && server.votes_from <= now
        };
        let votes: Vec<bool> = self.servers.iter().map(votes).collect();
        let count = |active: &mut dyn Iterator<Item = bool>| active.filter(|active| *active).count();
        let Some(machines) = &self.machines else { return (votes, count(&mut active.iter().copied())) };
        if self.replacing.is_some() {
            return (vec![false; votes.len()], count(&mut active.iter().copied()));
        }
        let (reached, able) = machines.reach(&votes);
        (reached, count(&mut active.iter().zip(able).map(|(active, able)| *active && able)))
    }

    /// Causes a fault of a server, or ends one. Returns false if the state of the server does not permit this.
    pub(crate) fn make(&mut self, node: usize, fault: NodeFault, truth: &mut Truth) -> bool {
        let (server, durable) = (&mut self.servers[node], self.durable);
        let fits = match fault {
            NodeFault::Kill => !server.down,
            NodeFault::Restart | NodeFault::RestartEmpty => server.down,
            NodeFault::Stop | NodeFault::Flush => !(server.down || server.stopped),
            NodeFault::Resume => !server.down && server.stopped,
            NodeFault::Fill => !(server.down || server.stopped || server.full),
            NodeFault::Empty => server.full,
            NodeFault::SetClock(ms) => server.may_step(ms),
            _ => true,
        };
        if !fits {
            return false;
        }
        let reconnected = if server.machine.is_some() { RECONNECTED_BY_PACKETS } else { RECONNECTED };
        let mut back_after = Duration::ZERO;
        match fault {
            NodeFault::Kill => {
                if !durable {
                    truth.lost_data(node, SystemWorld.now());
                }
                server.process.kill();
                (server.down, server.stopped, server.full) = (true, false, false);
            }
            NodeFault::Restart => {
                server.process.restart().unwrap_or_else(|error| panic!("{error}"));
                server.down = false;
                back_after = if durable { reconnected } else { vote_again_after() };
            }
            NodeFault::RestartEmpty => {
                truth.lost_data(node, SystemWorld.now());
                server.process.wipe().unwrap_or_else(|error| panic!("{error}"));
                server.process.restart().unwrap_or_else(|error| panic!("{error}"));
                truth.lost_data(node, SystemWorld.now());
                server.down = false;
                back_after = vote_again_after() + reconnected;
            }
            NodeFault::Stop => {
                server.process.pause();
                server.stopped = true;
            }
            NodeFault::Resume => {
                server.process.resume();
                server.stopped = false;
                server.set_memory();
                back_after = reconnected;
            }
            NodeFault::Flush => {
                truth.lost_data(node, SystemWorld.now());
                server.process.flushall();
                truth.lost_data(node, SystemWorld.now());
                back_after = vote_again_after();
            }
            NodeFault::Fill | NodeFault::Empty => {
                server.full = fault == NodeFault::Fill;
                server.set_memory();
                back_after = reconnected;
            }
            NodeFault::SetClock(ms) => {
                let far = is_far(ms - server.clock.0);
                if far {
                    truth.lost_data(node, SystemWorld.now());
                }
                back_after = server.set_clock(ms);
                if far {
                    truth.lost_data(node, SystemWorld.now());
                }
            }
            _ => back_after = self.make_network_fault(node, fault),
        }
        if !back_after.is_zero() {
            let server = &mut self.servers[node];
            server.votes_from = server.votes_from.max(SystemWorld.now() + back_after);
        }
        true
    }

    /// Causes or ends a fault of the network before one server. Returns the time after which the server can vote again.
    fn make_network_fault(&mut self, node: usize, fault: NodeFault) -> Duration {
        let server = &mut self.servers[node];
        if let Some(machines) = &mut self.machines {
            match fault {
                NodeFault::Slow(each_way, jitter) => {
                    machines.set_latency(node, Latency::each_way(each_way).jitter(jitter));
                }
                NodeFault::Heal => machines.set_latency(node, Latency::default()),
                NodeFault::Sever => machines.sever(node),
                _ => unreachable!("{fault:?} in a plan with machines, which splits the network instead"),
            }
            return Duration::ZERO;
        }
        let proxy = self.proxies.first().map(|proxies| &proxies[node]);
        let proxy = proxy.expect("a plan with network faults has proxies");
        match fault {
            NodeFault::Cut(directions) => {
                proxy.cut(directions);
                server.cut = true;
            }
            NodeFault::Slow(each_way, jitter) => {
                proxy.set_latency(Latency::each_way(each_way).jitter(jitter));
            }
            NodeFault::Sever => proxy.sever(),
            NodeFault::CutReply(bytes) => proxy.cut_reply_after(bytes),
            _ => {
                proxy.heal();
                if std::mem::take(&mut server.cut) {
                    return RECONNECTED;
                }
            }
        }
        Duration::ZERO
    }

    /// Begins a fault of links between machines.
    pub(crate) fn split(&mut self, split: Split) {
        let servers = self.server_machines();
        self.machines_mut().split(split, &servers);
    }

    /// Ends a fault of links between machines. Returns false if there is no such fault.
    pub(crate) fn join(&mut self, split: Split) -> bool {
        let servers = self.server_machines();
        let joined = self.machines_mut().join(split, &servers);
        if joined {
            self.all_reconnect();
        }
        joined
    }

    fn all_reconnect(&mut self) {
        let back = SystemWorld.now() + RECONNECTED_BY_PACKETS;
        self.servers.iter_mut().for_each(|server| server.votes_from = server.votes_from.max(back));
    }

    fn server_machines(&self) -> Vec<Machine> {
        self.servers.iter().filter_map(|server| server.machine.clone()).collect()
    }

    /// Returns the machines, if the plan has them.
    pub(crate) fn machines(&self) -> Option<&Machines> {
        self.machines.as_ref()
    }

    fn machines_mut(&mut self) -> &mut Machines {
        self.machines.as_mut().expect("a plan with machines")
    }

    /// Begins to replace a server by a new one on a new machine, while the workers run. Returns false if another server is
    /// being replaced.
    pub(crate) fn replace(&mut self, node: usize, seed: u64, truth: &mut Truth) -> bool {
        if self.replacing.is_some() {
            return false;
        }
        truth.lost_data(node, SystemWorld.now());
        let machine = self.machines_mut().for_server();
        let newcomer = Server::start(self.durable, Some(machine));
        let old: Vec<String> = self.processes().map(RedisServer::url).collect();
        let mut new = old.clone();
        new[node] = newcomer.process.url();
        self.replacing = Some(Replacing::begin(node, newcomer, (old, new), seed));
        true
    }

    pub(crate) fn is_replacing(&self) -> bool {
        self.replacing.is_some()
    }

    /// Ends a replacement that has been carried out. Returns true if there was one. The workers must then be started again
    /// with the new list.
    pub(crate) fn replaced(&mut self, truth: &mut Truth) -> bool {
        let Some(replacing) = self.replacing.take_if(|replacing| replacing.is_done()) else { return false };
        let (node, newcomer) = replacing.end();
        truth.lost_data(node, SystemWorld.now());
        let mut old = std::mem::replace(&mut self.servers[node], newcomer);
        old.process.kill();
        let servers = self.server_machines();
        let machines = self.machines.as_mut().expect("a plan with machines");
        machines.connect(node, &self.servers[node].process);
        machines.set_links(&servers);
        if let Some(machine) = old.machine {
            machines.remove(&machine);
        }
        self.all_reconnect();
        true
    }

    /// Ends all faults of the servers, and of the network that all workers share.
    pub(crate) fn heal_all(&mut self, truth: &mut Truth) {
        for node in 0..self.servers.len() {
            for end in [
                NodeFault::Heal,
                NodeFault::Resume,
                NodeFault::Restart,
                NodeFault::Empty,
                NodeFault::SetClock(0),
            ] {
                self.make(node, end, truth);
            }
        }
        let servers = self.server_machines();
        if let Some(machines) = &mut self.machines {
            machines.heal(&servers);
            self.all_reconnect();
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
