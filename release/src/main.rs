//! `coreflow-release`: stages, seals and packages a host release; see the library.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use coreflow_release::{
    compile::{EXECUTABLES, Folders, compile, verify_reproducible},
    debian::debian_package,
    digest::sha256_of_file,
    extract::{Pin, extract},
    failure::Failure,
    runtime::Linkage,
    seal::{Purpose, Staged, seal},
    smoke::smoke,
    source::Source,
    stage::{STAGED, stage, staged_directory},
    target::Target,
};

fn main() -> ExitCode {
    let matches = command_line().get_matches();
    let done = match matches.subcommand() {
        Some(("stage", matches)) => stage_targets(matches),
        Some(("seal", matches)) => seal_staged(matches),
        Some(("deb", matches)) => package(matches),
        Some(("extract", matches)) => extract_bundle(matches),
        Some(_) | None => unreachable!("clap demands one of the commands above"),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn command_line() -> Command {
    let text = |name: &'static str, help: &'static str| Arg::new(name).long(name).required(true).help(help);
    let path = |name, help| text(name, help).value_parser(value_parser!(PathBuf));
    let switch = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    let targets = Arg::new("target")
        .long("target")
        .action(ArgAction::Append)
        .help("linux-amd64 or linux-arm64; may be given twice. Both without it");
    let draft = switch("draft", "a set that no consumer takes for a release");
    Command::new("coreflow-release")
        .about("Stages, seals and packages a host release")
        .subcommand_required(true)
        .subcommand(
            Command::new("stage")
                .about("Compiles and stages dist_relay/TARGET")
                .arg(targets.clone())
                .arg(switch("verify-reproducible", "build again elsewhere, and compare")),
        )
        .subcommand(
            Command::new("seal")
                .about("Makes archives, manifest and checksums of what is staged")
                .arg(targets.clone())
                .arg(draft.clone()),
        )
        .subcommand(Command::new("deb").about("Makes Debian packages of what is staged").arg(targets))
        .subcommand(
            Command::new("extract")
                .about("Verifies and extracts the archive of a sealed set")
                .arg(path("set", "the folder of the set's assets"))
                .arg(path("into", "where the release directory is written"))
                .arg(text("bundle", "linux-amd64 or linux-arm64"))
                .arg(text("version", "the pinned version"))
                .arg(text("commit", "the pinned commit"))
                .arg(text("manifest-sha256", "the pinned digest of the manifest"))
                .arg(draft),
        )
}

/// The workspace that this program is built from.
fn source() -> Result<Source, Failure> {
    Source::at(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
}

fn targets(matches: &ArgMatches) -> Result<Vec<Target>, Failure> {
    match matches.get_many::<String>("target") {
        Some(named) => named.map(|name| Target::named(name)).collect(),
        None => Ok(Target::ALL.into()),
    }
}

fn purpose(matches: &ArgMatches) -> Purpose {
    if matches.get_flag("draft") { Purpose::Draft } else { Purpose::Publication }
}

/// Stages every target that can be built for, and then fails for those that were asked for and cannot be.
fn stage_targets(matches: &ArgMatches) -> Result<(), Failure> {
    let source = source()?;
    let mut refused = None;
    for target in targets(matches)? {
        if let Err(failure) = target.demand_installed() {
            eprintln!("{failure}");
            refused = Some(failure);
            continue;
        }
        let binaries = compile(&Folders::in_place(&source)?, target)?;
        if matches.get_flag("verify-reproducible") {
            verify_reproducible(&source, target, &binaries)?;
        }
        let directory = stage(&source, target, &binaries)?;
        if Target::of_host() == Some(target) {
            smoke(&directory)?;
        }
        println!("staged {}", directory.display());
        for name in EXECUTABLES {
            let path = binaries.join(name);
            let bytes = path.metadata().map_err(Failure::file(&path))?.len();
            println!("{bytes:>10} bytes  {name}");
        }
    }
    refused.map_or(Ok(()), Err)
}

fn seal_staged(matches: &ArgMatches) -> Result<(), Failure> {
    let source = source()?;
    // Without a name it is what is staged, and a publication says what is not.
    let named = matches.contains_id("target");
    let targets = targets(matches)?.into_iter();
    let targets = targets.filter(|target| named || staged_directory(&source, *target).is_dir());
    let staged = targets.map(|target| {
        let directory = staged_directory(&source, target);
        Ok(Staged { target, directory, linkage: Linkage::of(&source, target)? })
    });
    let staged = staged.collect::<Result<Vec<_>, _>>()?;
    let into = source.root.join(STAGED);
    let digest = seal(&source, purpose(matches), &staged, &into)?;
    println!("sealed in {}", into.display());
    println!("version {}, commit {}, manifest {digest}", source.version, source.commit);
    Ok(())
}

fn package(matches: &ArgMatches) -> Result<(), Failure> {
    let source = source()?;
    for target in targets(matches)? {
        let directory = staged_directory(&source, target);
        let package = debian_package(&source, target, &directory, &source.root.join(STAGED))?;
        println!("{}  {}", sha256_of_file(&package)?, package.display());
    }
    Ok(())
}

fn extract_bundle(matches: &ArgMatches) -> Result<(), Failure> {
    let text = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
    let path = |name: &str| matches.get_one::<PathBuf>(name).cloned().unwrap_or_default();
    let pin = Pin {
        version: text("version"),
        commit: text("commit"),
        manifest: text("manifest-sha256"),
        purpose: purpose(matches),
    };
    let directory = extract(&path("set"), Target::named(&text("bundle"))?, &pin, &path("into"))?;
    println!("{}", directory.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// REL-23: the one command stages both targets, each under `dist_relay` by its name, and one alone by request.
    #[test]
    fn both_targets_are_staged_unless_one_is_named() {
        let asked = |arguments: &[&str]| {
            let line = ["coreflow-release", "stage"].iter().chain(arguments);
            let matches = command_line().try_get_matches_from(line).unwrap();
            targets(matches.subcommand_matches("stage").unwrap()).unwrap()
        };
        assert_eq!(asked(&[]), Target::ALL);
        assert_eq!(asked(&["--target", "linux-arm64"]), [Target::LinuxArm64]);
        let source = source().unwrap();
        let directories = Target::ALL.map(|target| staged_directory(&source, target));
        assert_eq!(
            directories,
            ["linux-amd64", "linux-arm64"].map(|name| source.root.join("dist_relay").join(name))
        );
    }
}
