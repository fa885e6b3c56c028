use super::Machine;
use std::{
    fmt::Write as _,
    fs,
    io::{self, Write as _},
    net::Ipv4Addr,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

/// The folder in which `ip netns` keeps the files of network namespaces.
const NAMESPACES: &str = "/run/netns";
/// The address of the bridge, at which the machines reach the caller.
const BRIDGE: Ipv4Addr = Ipv4Addr::new(10, 71, 0, 254);
/// The largest number of machines in the life of a network. It limits the last part of their addresses.
const MACHINES: u8 = 250;

/// A faulty direction from one machine to another. Packets are lost with a probability in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// The machine that sends.
    pub from: Ipv4Addr,
    /// The machine that receives.
    pub to: Ipv4Addr,
    /// The percentage of the packets that are lost. If it is 100, the direction is cut.
    pub loss: u8,
}

/// A bridge, with the machines on it. The machines end with the namespaces of the process that made them
/// ([`isolated`](super::isolated)).
#[derive(Debug)]
pub struct Network {
    machines: u8,
}

impl Network {
    /// Makes the bridge.
    ///
    /// # Errors
    /// If this process does not run under [`isolated`](super::isolated), or if a command fails.
    pub fn new() -> io::Result<Self> {
        // The check keeps a wrong call from changing the network of the machine itself.
        let interfaces = fs::read_to_string("/proc/net/dev")?;
        let others = interfaces.lines().skip(2).filter(|line| !line.trim_start().starts_with("lo:")).count();
        if std::process::id() != 1 || others > 0 {
            return Err(io::Error::other("this process is not alone in namespaces of its own"));
        }
        run("mount", &["-t", "tmpfs", "none", "/run"])?;
        fs::create_dir(NAMESPACES)?;
        run("ip", &["link", "set", "lo", "up"])?;
        run("ip", &["link", "add", "name", "switch", "type", "bridge"])?;
        run("ip", &["addr", "add", &format!("{BRIDGE}/24"), "dev", "switch"])?;
        run("ip", &["link", "set", "switch", "up"])?;
        let network = Self { machines: 0 };
        network.filter("")?;
        Ok(network)
    }

    /// Returns the address at which the machines reach the caller. Packet filters do not concern it.
    pub fn bridge(&self) -> Ipv4Addr {
        BRIDGE
    }

    /// Adds a machine. If `boot_offset` is given, its boot and monotonic clocks are ahead of the caller's by this many
    /// whole seconds.
    ///
    /// # Errors
    /// If a command fails, or if there were 250 machines before.
    pub fn machine(&mut self, boot_offset: Option<Duration>) -> io::Result<Machine> {
        if self.machines == MACHINES {
            return Err(io::Error::other(format!("the network has had {MACHINES} machines already")));
        }
        self.machines += 1;
        let name = format!("machine-{}", self.machines);
        let address = Ipv4Addr::new(10, 71, 0, self.machines);
        let network = Path::new(NAMESPACES).join(&name);
        run("ip", &["netns", "add", &name])?;
        run("ip", &["link", "add", "name", &name, "type", "veth", "peer", "name", "eth0", "netns", &name])?;
        run("ip", &["link", "set", "dev", &name, "master", "switch", "up"])?;
        for command in [
            &["link", "set", "lo", "up"][..],
            &["addr", "add", &format!("{address}/24"), "dev", "eth0"],
            &["link", "set", "eth0", "up"],
        ] {
            run("ip", &[&["-n", &name], command].concat())?;
        }
        let clock = boot_offset.map(|offset| clock(&name, offset)).transpose()?;
        Ok(Machine { name, address, network, clock })
    }

    /// Removes a machine on which no process runs any more.
    ///
    /// # Errors
    /// If a command fails.
    pub fn remove(&self, machine: &Machine) -> io::Result<()> {
        // The end of one interface of the pair ends the other one.
        run("ip", &["link", "delete", "dev", &machine.name])?;
        run("ip", &["netns", "delete", &machine.name])
    }

    /// Makes exactly these directions faulty, in place of those of the last call. Directions that are not listed lose
    /// nothing.
    ///
    /// # Errors
    /// If the packet filters cannot be set.
    pub fn set_links(&self, links: &[Link]) -> io::Result<()> {
        let mut rules = String::new();
        for Link { from, to, loss } in links {
            let some = if *loss < 100 { format!("numgen random mod 100 < {loss} ") } else { String::new() };
            let _ = writeln!(rules, "add rule bridge quorate links ip saddr {from} ip daddr {to} {some}drop");
        }
        self.filter(&rules)
    }

    /// Replaces all packet filters at once.
    fn filter(&self, rules: &str) -> io::Result<()> {
        let script = format!(
            "add table bridge quorate\nadd chain bridge quorate links {{ type filter hook forward priority 0; }}\n\
             flush chain bridge quorate links\n{rules}"
        );
        let mut nft = Command::new("nft");
        let mut nft = nft.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        let written = nft.stdin.take().map(|mut input| input.write_all(script.as_bytes()));
        let status = nft.wait()?;
        written.transpose()?;
        if status.success() {
            Ok(())
        } else {
            Err(io::Error::other(format!("nft ended with {status}: {script}")))
        }
    }
}

/// Makes a time namespace, and returns its file.
fn clock(name: &str, offset: Duration) -> io::Result<(std::path::PathBuf, Duration)> {
    let offset = Duration::from_secs(offset.as_secs());
    let file = Path::new("/run").join(format!("time-{name}"));
    fs::write(&file, "")?;
    let seconds = offset.as_secs().to_string();
    let time = format!("--time={}", file.display());
    run("unshare", &[&time, "--boottime", &seconds, "--monotonic", &seconds, "true"])?;
    Ok((file, offset))
}

fn run(program: &str, args: &[&str]) -> io::Result<()> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output();
    let output = output.map_err(|error| io::Error::new(error.kind(), format!("{program}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!(
        "`{program} {}` ended with {}: {}",
        args.join(" "),
        output.status,
        errors.trim()
    )))
}
