use super::Node;
use quorate::env::{SystemWorld, World};
use quorate_testkit::{
    machines::{Link, Machine, Network},
    proxy::{Latency, Proxy},
    redis::RedisServer,
};
use std::{net::Ipv4Addr, process::Command, time::Duration};

/// The difference between the boot clocks of two neighbouring workers.
const BOOT_APART: Duration = Duration::from_secs(1000);

/// A fault of the links between some workers and some servers. Bit `n` of a mask is worker or server `n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split {
    pub(crate) workers: u32,
    pub(crate) nodes: u32,
    /// True if the masks are one half of the network, and all links to the other half are faulty. False if the links
    /// between the workers and the servers in the masks are.
    pub(crate) halves: bool,
    /// The faulty directions: from the workers to the servers, and back.
    pub(crate) directions: [bool; 2],
    /// The percentage of the packets that are lost. At 100, nothing arrives.
    pub(crate) loss: u8,
}

impl Split {
    /// Returns whether the link between this worker and this server is faulty.
    pub(crate) fn concerns(&self, worker: usize, node: usize) -> bool {
        let (worker, node) = (self.workers >> worker & 1 == 1, self.nodes >> node & 1 == 1);
        if self.halves { worker != node } else { worker && node }
    }
}

/// The network of a plan with machines: one for each server and each worker. A worker reaches every second server through
/// a proxy on its own machine, which can delay, and the others directly.
#[derive(Debug)]
pub(crate) struct Machines {
    network: Network,
    workers: Vec<Machine>,
    splits: Vec<Split>,
    /// For each server and each worker, the proxy between them, if there is one.
    proxies: Vec<Vec<Option<Proxy>>>,
}

impl Machines {
    /// Makes the network and the machines of the workers, each with a boot clock of its own.
    ///
    /// # Panics
    /// If a command fails, or this process is not alone in its namespaces.
    pub(crate) fn new(workers: usize) -> Self {
        let mut network = Network::new().unwrap_or_else(|error| panic!("{error}"));
        let offset = |member: usize| BOOT_APART * u32::try_from(member + 1).expect("few workers");
        let machine =
            |member| network.machine(Some(offset(member))).unwrap_or_else(|error| panic!("{error}"));
        let workers = (0..workers).map(machine).collect();
        Self { network, workers, splits: Vec::new(), proxies: Vec::new() }
    }

    /// Makes a machine for a server.
    pub(crate) fn for_server(&mut self) -> Machine {
        self.network.machine(None).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn remove(&self, machine: &Machine) {
        self.network.remove(machine).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Connects the workers to a server, in place of an earlier server `node`.
    pub(crate) fn connect(&mut self, node: usize, server: &RedisServer) {
        let proxy = |(member, machine): (usize, &Machine)| {
            let seed = SystemWorld.random();
            (member + node)
                .is_multiple_of(2)
                .then(|| Proxy::on(machine, server, seed).expect("a port and a thread"))
        };
        let proxies = self.workers.iter().enumerate().map(proxy).collect();
        if node == self.proxies.len() {
            self.proxies.push(proxies);
        } else {
            self.proxies[node] = proxies;
        }
    }

    /// Returns the node with the URL over which one worker reaches it.
    pub(crate) fn node(&self, member: usize, node: usize, server: &RedisServer) -> Node {
        let name = server.url();
        let url = self.proxies[node][member].as_ref().map_or_else(|| name.clone(), Proxy::url);
        Node { name, url }
    }

    pub(crate) fn workers(&self) -> &[Machine] {
        &self.workers
    }

    /// Returns the address at which the machines reach this process.
    pub(crate) fn bridge(&self) -> Ipv4Addr {
        self.network.bridge()
    }

    pub(crate) fn set_latency(&self, node: usize, latency: Latency) {
        self.proxies[node].iter().flatten().for_each(|proxy| proxy.set_latency(latency));
    }

    pub(crate) fn sever(&self, node: usize) {
        self.proxies[node].iter().flatten().for_each(Proxy::sever);
    }

    /// Begins a fault of links. `servers` are the present servers, in order.
    pub(crate) fn split(&mut self, split: Split, servers: &[Machine]) {
        self.splits.push(split);
        self.set_links(servers);
    }

    /// Ends a fault of links. Returns false if there is no such fault.
    pub(crate) fn join(&mut self, split: Split, servers: &[Machine]) -> bool {
        let Some(at) = self.splits.iter().position(|other| *other == split) else { return false };
        self.splits.swap_remove(at);
        self.set_links(servers);
        true
    }

    /// Ends all faults of the network.
    pub(crate) fn heal(&mut self, servers: &[Machine]) {
        self.splits.clear();
        self.set_links(servers);
        self.proxies.iter().flatten().flatten().for_each(Proxy::heal);
    }

    /// Sets the packet filters after the servers have changed.
    pub(crate) fn set_links(&self, servers: &[Machine]) {
        let mut links = Vec::new();
        for split in &self.splits {
            for (member, worker) in self.workers.iter().enumerate() {
                for (_, server) in
                    servers.iter().enumerate().filter(|(node, _)| split.concerns(member, *node))
                {
                    let (there, back) =
                        ((worker.address(), server.address()), (server.address(), worker.address()));
                    let faulty =
                        [there, back].into_iter().zip(split.directions).filter(|(_, faulty)| *faulty);
                    links.extend(faulty.map(|((from, to), _)| Link { from, to, loss: split.loss }));
                }
            }
        }
        self.network.set_links(&links).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Returns which of the servers that can vote can do so for every worker that matters, and which workers matter: those
    /// that reach a majority. A worker that reaches no majority can neither acquire nor record anything.
    pub(crate) fn reach(&self, voting: &[bool]) -> (Vec<bool>, Vec<bool>) {
        let reaches = |member: usize, node: usize| {
            voting[node] && !self.splits.iter().any(|split| split.concerns(member, node))
        };
        reach(self.workers.len(), voting.len(), reaches)
    }
}

/// Returns for each server whether all workers that reach a majority reach it, and for each worker whether it reaches a
/// majority. If no worker does, no server counts.
fn reach(workers: usize, nodes: usize, reaches: impl Fn(usize, usize) -> bool) -> (Vec<bool>, Vec<bool>) {
    let majority = nodes / 2 + 1;
    let able = |member: usize| (0..nodes).filter(|node| reaches(member, *node)).count() >= majority;
    let able: Vec<bool> = (0..workers).map(able).collect();
    let reached =
        |node: usize| (0..workers).filter(|member| able[*member]).all(|member| reaches(member, node));
    let any = able.contains(&true);
    ((0..nodes).map(|node| any && reached(node)).collect(), able)
}

pub(crate) fn on_machine(machine: &Machine, command: &Command) -> Command {
    let mut entered = machine.command(command.get_program());
    entered.args(command.get_args());
    entered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_separate_and_other_splits_cut_between_the_masks() {
        let split = Split { workers: 0b001, nodes: 0b00111, halves: true, directions: [true; 2], loss: 100 };
        assert!(
            !split.concerns(0, 2) && split.concerns(0, 3) && split.concerns(1, 0) && !split.concerns(2, 4)
        );
        let split = Split { halves: false, ..split };
        assert!(
            split.concerns(0, 2) && !split.concerns(0, 3) && !split.concerns(1, 0) && !split.concerns(2, 4)
        );
    }

    #[test]
    fn only_workers_with_a_majority_decide_which_servers_count() {
        let halves = Split { workers: 0b001, nodes: 0b00111, halves: true, directions: [true; 2], loss: 100 };
        let (votes, able) = reach(3, 5, |worker, node| !halves.concerns(worker, node));
        assert_eq!(votes, [true, true, true, false, false]);
        assert_eq!(able, [true, false, false]);
        // The first worker reaches servers 0 to 2, the second one servers 2 to 4.
        let (votes, able) = reach(2, 5, |worker, node| if worker == 0 { node < 3 } else { node > 1 });
        assert_eq!((votes, able), (vec![false, false, true, false, false], vec![true, true]));
        let (votes, able) = reach(2, 5, |_, node| node < 2);
        assert_eq!((votes, able), (vec![false; 5], vec![false; 2]));
    }
}
