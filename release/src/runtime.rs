//! What is in a static executable beside crates: Rust's standard library, the C library and the compiler's own
//! runtime (REL-15, REL-16), each with its license texts and the place of its corresponding source.

use std::{fs, path::PathBuf};

use serde::Serialize;

use crate::{
    failure::Failure,
    licenses::NoticeText,
    linked::{LinkedCrate, linked_crates},
    program::{answer, command},
    source::Source,
    target::Target,
};

/// All that is in the executables for a target beside this project's own code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Linkage {
    /// The crates.
    pub crates: Vec<LinkedCrate>,
    /// The rest.
    pub runtime: Vec<RuntimeComponent>,
}

impl Linkage {
    /// That of the released executables for `target`.
    ///
    /// # Errors
    /// cargo failed, or the runtime cannot be accounted for.
    pub fn of(source: &Source, target: Target) -> Result<Self, Failure> {
        Ok(Self { crates: linked_crates(source, target)?, runtime: runtime_components(source, target)? })
    }
}

/// A component of the runtime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeComponent {
    /// Its name.
    pub name: String,
    /// Its version, as it says itself.
    pub version: String,
    /// By which those who keep lists of known faults call it, as a package URL.
    pub purl: String,
    /// Its license, as an SPDX expression.
    pub license: String,
    /// Where its complete corresponding source is obtained, and what its license asks for besides.
    pub source: String,
    /// Its license and notice texts, in full.
    pub notices: Vec<NoticeText>,
}

/// How the C library's account of itself begins, in its archive.
const GLIBC_BANNER: &[u8] = b"GNU C Library (";
/// Texts beside the standard library's copyright page, which names these licenses.
const RUST_LICENSES: [&str; 4] = ["Apache-2.0.txt", "MIT.txt", "Unicode-3.0.txt", "BSD-2-Clause.txt"];

/// The components of an executable for `target`.
///
/// # Errors
/// The toolchain lacks its own copyright page, or a library does not say its version.
pub fn runtime_components(source: &Source, target: Target) -> Result<Vec<RuntimeComponent>, Failure> {
    Ok(vec![rust_standard_library(source)?, glibc(source, target)?, libgcc(target)?])
}

fn rust_standard_library(source: &Source) -> Result<RuntimeComponent, Failure> {
    let sysroot = answer(command("rustc").args(["--print", "sysroot"]))?;
    let documents = PathBuf::from(sysroot.trim()).join("share/doc/rust");
    let read = |name: &str| {
        let path = documents.join(name);
        fs::read_to_string(&path).map_err(Failure::file(&path))
    };
    let page = read("COPYRIGHT-library.html")?;
    let mut notices = vec![NoticeText { name: "COPYRIGHT-library".to_owned(), text: plain(&page) }];
    for name in RUST_LICENSES {
        notices.push(NoticeText { name: name.to_owned(), text: read(&format!("licenses/{name}"))? });
    }
    // The page is silent of the one part that is linked into whatever rustc makes.
    notices.push(notice("compiler-builtins", include_str!("../notices/compiler-builtins.txt")));
    notices.push(notice("libm", include_str!("../notices/libm.txt")));
    Ok(RuntimeComponent {
        name: "Rust standard library, with the crates that are linked into it".to_owned(),
        version: source.compiler.clone(),
        purl: format!("pkg:generic/rust@{}", source.compiler),
        license:
            "(MIT OR Apache-2.0) AND MIT AND Apache-2.0 WITH LLVM-exception AND Unicode-3.0 AND BSD-2-Clause"
                .to_owned(),
        source: format!(
            "https://static.rust-lang.org/dist/rustc-{}-src.tar.xz, folder library",
            source.compiler
        ),
        notices,
    })
}

fn glibc(source: &Source, target: Target) -> Result<RuntimeComponent, Failure> {
    let path = answer(command(target.c_compiler()).arg("-print-file-name=libc.a"))?;
    let path = PathBuf::from(path.trim());
    let archive = fs::read(&path).map_err(Failure::file(&path))?;
    let at = archive.windows(GLIBC_BANNER.len()).position(|bytes| bytes == GLIBC_BANNER);
    let banner =
        at.map(|at| archive[at..].split(|byte| *byte == b'\n' || *byte == 0).next().unwrap_or_default());
    let banner = banner.ok_or(Failure::Answer("libc.a", "no version".to_owned()))?;
    let version = String::from_utf8_lossy(banner).trim_end_matches('.').to_owned();
    let commit = &source.commit;
    Ok(RuntimeComponent {
        name: "glibc".to_owned(),
        purl: purl_of_glibc(&version),
        version,
        license: "LGPL-2.1-or-later".to_owned(),
        source: format!(
            "The source package `glibc` of the distribution that the version names, unchanged, is at \
             https://snapshot.debian.org/package/glibc/, and the release of its authors at \
             https://ftp.gnu.org/gnu/glibc/. To use a changed glibc: all of Coreflow's source, which is published \
             under the MIT license, is at https://code.foss.global/serve.zone/coreflow, commit {commit}; install \
             the changed library's libc.a and run `cargo release-stage`, which links the executables anew. Nothing \
             keeps a relinked executable from running, or from being taken apart to debug such a change."
        ),
        notices: vec![
            notice("glibc-copyright", include_str!("../notices/glibc-copyright.txt")),
            notice("LGPL-2.1", include_str!("../notices/LGPL-2.1.txt")),
        ],
    })
}

fn libgcc(target: Target) -> Result<RuntimeComponent, Failure> {
    let version = answer(command(target.c_compiler()).arg("-dumpfullversion"))?.trim().to_owned();
    Ok(RuntimeComponent {
        name: "libgcc and libgcc_eh, with the start files of GCC".to_owned(),
        source: format!("https://ftp.gnu.org/gnu/gcc/gcc-{version}/, folder libgcc"),
        purl: format!("pkg:generic/gcc@{version}"),
        version,
        license: "GPL-3.0-or-later WITH GCC-exception-3.1".to_owned(),
        notices: vec![
            notice("GCC-exception-3.1", include_str!("../notices/GCC-exception-3.1.txt")),
            notice("GPL-3.0", include_str!("../notices/GPL-3.0.txt")),
        ],
    })
}

/// The distribution's package where the C library names it, as in `GNU C Library (Debian GLIBC 2.36-9) stable release
/// version 2.36`, and else the release of its authors.
fn purl_of_glibc(banner: &str) -> String {
    let packaged = banner.split_once("(Debian GLIBC ").and_then(|(_, rest)| rest.split_once(')'));
    match packaged {
        Some((version, _)) => format!("pkg:deb/debian/glibc@{}", version.replace('+', "%2B")),
        None => format!("pkg:generic/glibc@{}", banner.rsplit(' ').next().unwrap_or_default()),
    }
}

fn notice(name: &str, text: &str) -> NoticeText {
    NoticeText { name: name.to_owned(), text: text.trim().to_owned() }
}

/// The text of a page: without its tags, its entities as the characters they stand for, its runs of empty lines
/// as one.
fn plain(page: &str) -> String {
    let mut text = String::with_capacity(page.len());
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        text.push_str(&rest[..at]);
        let tag = &rest[at..];
        rest = tag.find('>').map_or("", |end| &tag[end + 1..]);
    }
    text.push_str(rest);
    for (entity, character) in
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#34;", "\""), ("&#39;", "'"), ("&amp;", "&")]
    {
        text = text.replace(entity, character);
    }
    let mut lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.dedup_by(|one, other| one.is_empty() && other.is_empty());
    lines.join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_as_its_text() {
        let page = "<h1>Notices</h1>\n\n\n<p>A &amp; B &lt;a@b&gt;</p>\n<pre>  kept   \n</pre>";
        assert_eq!(plain(page), "Notices\n\nA & B <a@b>\n  kept");
    }

    #[test]
    fn the_c_library_is_called_as_lists_of_faults_call_it() {
        for (banner, purl) in [
            (
                "GNU C Library (Debian GLIBC 2.36-9+deb12u13) stable release version 2.36",
                "pkg:deb/debian/glibc@2.36-9%2Bdeb12u13",
            ),
            ("GNU C Library (GNU libc) stable release version 2.39", "pkg:generic/glibc@2.39"),
        ] {
            assert_eq!(purl_of_glibc(banner), purl);
        }
    }

    /// REL-15, REL-16: the three parts that no crate accounts for are named with their versions, and the C library,
    /// whose license asks for it, with its source and the way to use another one.
    #[test]
    fn the_runtime_is_accounted_for() {
        let source = Source::at(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()).unwrap();
        let parts = runtime_components(&source, Target::of_host().unwrap()).unwrap();
        let [rust, glibc, libgcc] = &parts[..] else { panic!("three parts") };
        assert_eq!(rust.version, source.compiler);
        assert!(rust.notices[0].text.contains("hashbrown"), "its own crates are in it");
        let texts: Vec<&str> = rust.notices.iter().map(|notice| notice.text.as_str()).collect();
        for part in
            ["is derived from LLVM's compiler-rt", "LLVM Exceptions to the Apache 2.0 License", "musl"]
        {
            assert!(texts.iter().any(|text| text.contains(part)), "{part}: what every executable has of it");
        }
        assert!(glibc.version.starts_with("GNU C Library ("), "{}", glibc.version);
        assert!(glibc.source.contains("https://") && glibc.source.contains(&source.commit));
        assert!(glibc.notices[1].text.contains("GNU LESSER GENERAL PUBLIC LICENSE"));
        assert!(libgcc.license.ends_with("WITH GCC-exception-3.1"));
        for part in &parts {
            assert!(part.notices.iter().all(|notice| notice.text.len() > 500), "{}", part.name);
        }
    }
}
