//! The servers, each with a proxy before it, and what is wrong with each.

use super::{
    settings::NODES,
    truth::{Truth, quarantine_ends},
};
use quorate::env::{BootTime, SystemWorld, World};
use quorate_testkit::{
    proxy::{Directions, Latency, Proxy},
    redis::{RedisConfig, RedisServer},
};
use std::time::Duration;

/// A server that has been away is met again within this.
const TO_BE_MET: Duration = Duration::from_millis(600);

/// All servers. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Arena {
    /// The servers remember over a restart.
    durable: bool,
    places: Vec<Place>,
}

#[derive(Debug)]
struct Place {
    // Before the server, so that it goes first.
    proxy: Proxy,
    server: RedisServer,
    down: bool,
    stopped: bool,
    cut: bool,
    /// From when on it votes, if nothing else is wrong.
    from: BootTime,
}

impl Arena {
    /// Starts them. Where they are `durable` they remember over a restart.
    ///
    /// # Panics
    /// Where `redis-server` cannot be started, with how to install it.
    pub(crate) fn start(durable: bool) -> Self {
        let place = |_| {
            // A Ctrl-C is for us: we end them in our way.
            let config = RedisConfig::new().own_process_group();
            let config = if durable { config.append_only() } else { config };
            let server = config.start().unwrap_or_else(|error| panic!("{error}"));
            let proxy = Proxy::before(&server).expect("a port and a thread");
            Place { proxy, server, down: false, stopped: false, cut: false, from: BootTime::default() }
        };
        Self { durable, places: (0..NODES).map(place).collect() }
    }

    /// What workers connect to.
    pub(crate) fn urls(&self) -> Vec<String> {
        self.places.iter().map(|place| place.proxy.url()).collect()
    }

    /// The servers, to be asked without a proxy.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &RedisServer> {
        self.places.iter().map(|place| &place.server)
    }

    /// How many nodes can vote now.
    pub(crate) fn usable(&self, now: BootTime) -> usize {
        let votes = |place: &&Place| !place.down && !place.stopped && !place.cut && place.from <= now;
        self.places.iter().filter(votes).count()
    }

    /// Kills a server that is up.
    pub(crate) fn kill(&mut self, node: usize, truth: &mut Truth) -> bool {
        let place = &mut self.places[node];
        if place.down {
            return false;
        }
        if !self.durable {
            truth.forgot(node, SystemWorld.now());
        }
        place.server.kill();
        place.down = true;
        place.stopped = false;
        true
    }

    /// Starts a server that is down.
    pub(crate) fn bring_up(&mut self, node: usize) -> bool {
        let place = &mut self.places[node];
        if !place.down {
            return false;
        }
        place.server.restart().unwrap_or_else(|error| panic!("{error}"));
        place.down = false;
        let now = SystemWorld.now();
        place.from = place.from.max(if !self.durable { quarantine_ends(now) } else { now + TO_BE_MET });
        true
    }

    /// Stops a server that runs.
    pub(crate) fn stop(&mut self, node: usize) -> bool {
        let place = &mut self.places[node];
        let fits = !place.down && !place.stopped;
        if fits {
            place.server.pause();
            place.stopped = true;
        }
        fits
    }

    /// Lets a server go on that is stopped.
    pub(crate) fn resume(&mut self, node: usize) -> bool {
        let place = &mut self.places[node];
        let fits = !place.down && place.stopped;
        if fits {
            place.server.resume();
            place.stopped = false;
            place.from = place.from.max(SystemWorld.now() + TO_BE_MET);
        }
        fits
    }

    /// Makes a server forget everything.
    pub(crate) fn flush(&mut self, node: usize, truth: &mut Truth) -> bool {
        let place = &mut self.places[node];
        let fits = !place.down && !place.stopped;
        if fits {
            truth.forgot(node, SystemWorld.now());
            place.server.flushall();
            let now = SystemWorld.now();
            truth.forgot(node, now);
            place.from = place.from.max(quarantine_ends(now));
        }
        fits
    }

    /// Cuts one direction, or both.
    pub(crate) fn cut(&mut self, node: usize, directions: Directions) -> bool {
        self.places[node].proxy.cut(directions);
        self.places[node].cut = true;
        true
    }

    /// Slows the network before a server.
    pub(crate) fn slow(&mut self, node: usize, each_way: Duration, jitter: Duration) -> bool {
        self.places[node].proxy.set_latency(Latency::each_way(each_way).jitter(jitter));
        true
    }

    /// Puts the network before a server in order.
    pub(crate) fn heal(&mut self, node: usize) -> bool {
        let place = &mut self.places[node];
        place.proxy.heal();
        if std::mem::take(&mut place.cut) {
            place.from = place.from.max(SystemWorld.now() + TO_BE_MET);
        }
        true
    }

    /// Breaks every connection to a server.
    pub(crate) fn sever(&mut self, node: usize) -> bool {
        self.places[node].proxy.sever();
        true
    }

    /// Breaks a connection after so many bytes of the next reply.
    pub(crate) fn cut_reply(&mut self, node: usize, bytes: usize) -> bool {
        self.places[node].proxy.cut_reply_after(bytes);
        true
    }

    /// Puts everything in order.
    pub(crate) fn heal_all(&mut self) {
        for node in 0..NODES {
            self.heal(node);
            self.resume(node);
            self.bring_up(node);
        }
    }
}
