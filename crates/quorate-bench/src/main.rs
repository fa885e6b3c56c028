//! `quorate-bench`: measures Quorate and other lock implementations (its rivals) in one run, on five Redis
//! servers.
//!
//! # What is not guaranteed
//!
//! Absolute figures are valid only for this machine at this moment. Compare only figures of one run with each
//! other: rivals alternate in short rounds, so that other work on the machine affects all of them.

mod args;
mod compare;
mod machine;
mod measure;
mod plan;
mod plot;
mod report;
mod rivals;
mod scenarios;
mod servers;

use args::Args;
use clap::Parser;
use compare::Earlier;
use plan::Plan;
use report::Report;
use servers::Servers;
use std::process::ExitCode;

fn main() -> ExitCode {
    // The daemon of the scenario `sidecar` is this program too.
    if std::env::args().nth(1).is_some_and(|first| first == "serve") {
        return quorate_cli::main();
    }
    let args = Args::parse();
    if args.list {
        scenarios::ALL.iter().for_each(|scenario| println!("{:<10} {}", scenario.name, scenario.what));
        return ExitCode::SUCCESS;
    }
    match run(&args) {
        Ok((report, compared)) => {
            print!("{}{compared}", if args.json { report.json() } else { report.table() });
            if report.is_sound() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("quorate-bench: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs the measurements. Returns the report and, if requested, the comparison with an earlier report as text.
fn run(args: &Args) -> Result<(Report, String), String> {
    let (plan, chosen) = (Plan::of(args)?, scenarios::chosen(args)?);
    // The earlier report is read first. If its file cannot be read, the program fails before it measures
    // anything.
    let earlier = args.compare.as_deref().map(Earlier::read).transpose()?;
    let mut report = Report::new(machine::describe());
    for scenario in chosen {
        eprintln!("{}: {} …", scenario.name, scenario.what);
        if let Some(why) = (scenario.cannot_run)() {
            report.skip(scenario.name, &why);
            continue;
        }
        // Each scenario has its own servers, so that the data and connections of one scenario do not
        // slow down the next one.
        let servers = Servers::new(args)?;
        report.about_servers(&servers.version()?);
        if scenario.stops_servers && !servers.can_be_stopped() {
            report.skip(scenario.name, "servers given by URL are not stopped; leave --url out");
            continue;
        }
        let mut measured = (scenario.run)(&plan, &servers);
        for _ in 1..plan.attempts {
            if let Err(error) = &measured {
                eprintln!("{}: {error}; again …", scenario.name);
                measured = (scenario.run)(&plan, &Servers::new(args)?);
            }
        }
        match measured {
            Ok(rows) => report.add(scenario.name, scenario.what, rows),
            Err(error) => {
                eprintln!("{}: {error}", scenario.name);
                report.fail(scenario.name, error);
            }
        }
    }
    if let Some(path) = &args.plot {
        plot::draw(&report, path)?;
    }
    let compared = earlier.map(|earlier| earlier.compared(&report)).transpose()?;
    Ok((report, compared.unwrap_or_default()))
}
