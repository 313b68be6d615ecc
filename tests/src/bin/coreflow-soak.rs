//! `cargo soak`: the relay among failing peers for a time; see [`coreflow_tests::soak`].

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use coreflow_tests::soak::plan::Plan;
use coreflow_tests::soak::{Options, run};

const USAGE: &str = "\
usage: coreflow-soak [--seconds N] [--seed S] [--nodes N] [--binaries DIR] [--plan]

  --seconds N     how long faults are done; 60 without it
  --seed S        what they are drawn from; a number of chance without it
  --nodes N       how many nodes there are; 12 without it
  --binaries DIR  where coreflow and its workers are; they are built without it
  --plan          print the plan of the seed and do nothing";

fn options(mut arguments: impl Iterator<Item = String>) -> Result<(Options, bool), String> {
    let seed = getrandom::u64().map_err(|error| format!("no seed of chance: {error}"))? >> 16;
    let mut options = Options { length: Duration::from_secs(60), seed, nodes: 12, binaries: None };
    let mut plan = false;
    while let Some(name) = arguments.next() {
        if name == "--plan" {
            plan = true;
            continue;
        }
        let value = arguments.next().ok_or_else(|| format!("{name} has no value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{name} {value} is no number"));
        match name.as_str() {
            "--seconds" => options.length = Duration::from_secs(number()?),
            "--seed" => options.seed = number()?,
            "--nodes" => options.nodes = usize::try_from(number()?).map_err(|error| error.to_string())?,
            "--binaries" => {
                // The relay runs in a directory of its own.
                let directory = PathBuf::from(&value).canonicalize();
                options.binaries = Some(directory.map_err(|error| format!("--binaries {value}: {error}"))?);
            }
            _ => return Err(format!("{name} is unknown")),
        }
    }
    if !(1..=1000).contains(&options.nodes) || !(5..=86_400).contains(&options.length.as_secs()) {
        return Err("1 to 1000 nodes and 5 to 86400 seconds".to_owned());
    }
    Ok((options, plan))
}

#[tokio::main]
async fn main() -> ExitCode {
    let (options, plan_only) = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("{why}\n\n{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    let plan = Plan::draw(options.seed, options.length, options.nodes);
    println!("seed {}, {} faults planned", options.seed, plan.faults());
    if plan_only {
        print!("{plan}");
        return ExitCode::SUCCESS;
    }
    match run(&options).await {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}
