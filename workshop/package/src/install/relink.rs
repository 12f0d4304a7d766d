//! Links both libraries again from the archive that cargo built, so that they have only our symbols.
//!
//! What  in rustc's archive every symbol of Rust's standard library is global. It clashes with another Rust
//!       library in the same program, and a plug-in exports them all. Here the archive becomes one object, in
//!       which only the functions of the header are global. The shared library is linked from that object
//!       with `pagepool.map`, which gives each function its version. rustc cannot do that: it passes the
//!       linker its own script for each shared library, and linkers refuse a second one.
//! Musl  has only the static library. It includes the unwinder that comes with rustc, as local symbols: that
//!       of gcc belongs to glibc.
//! Needs `cc` (or `CC`), as cargo does to link a shared library, `objcopy` and `ar` (or `OBJCOPY` and `AR`)
//!       of binutils or LLVM. Without `objcopy` the archive stays as rustc wrote it, and a warning says so.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::tool::output_of;

/// The libraries. Those in the folder go with it.
pub struct Libraries {
    _folder: Folder,
    /// `None` for a target that has no shared libraries.
    pub shared: Option<PathBuf>,
    pub archive: PathBuf,
}

/// A folder of one installation, beside which others may run. Its drop removes it.
struct Folder(PathBuf);

impl Folder {
    fn new(built: &Path) -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = built.join(format!("relinked-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Relinks the archive in the folder `built`, for `target` if it is not this system. `source` has
/// `symbols.txt` and `pagepool.map`.
pub fn relink(built: &Path, source: &Path, target: Option<&str>) -> Result<Libraries, String> {
    let folder = Folder::new(built)?;
    let symbols = source.join("symbols.txt");
    let all = folder.0.join("all.o");
    let musl = target.filter(|target| target.ends_with("-musl"));
    let unwinder = musl.map(unwinder_of).transpose()?;
    one_object(&built.join("libpagepool_c.a"), unwinder.as_deref(), &symbols, &all)?;
    let shared = folder.0.join("libpagepool.so");
    if musl.is_none() {
        link_shared(&all, &source.join("pagepool.map"), &shared)?;
    }
    let shared = musl.is_none().then_some(shared);
    let archive = folder.0.join("libpagepool.a");
    let archive = match hide(&all, &symbols, &folder.0.join("pagepool.o"), &archive) {
        Ok(()) => archive,
        Err(why) if musl.is_some() => return Err(why),
        Err(why) => {
            eprintln!(
                "pagepool: warning: all symbols of Rust's standard library are global in libpagepool.a, so \
                 it may not link beside another Rust library: {why}. Remedy: install binutils, or set \
                 OBJCOPY and AR"
            );
            built.join("libpagepool_c.a")
        }
    };
    Ok(Libraries { _folder: folder, shared, archive })
}

/// A tool, by the variable that names it or by its usual name.
fn tool(variable: &str, usual: &str) -> Command {
    let named = env::var_os(variable).filter(|name| !name.is_empty());
    Command::new(named.unwrap_or_else(|| OsString::from(usual)))
}

fn run(command: &mut Command) -> Result<(), String> {
    output_of(command).map(drop)
}

/// Links the members of the archive that our functions need into one object. Section groups are dissolved,
/// because a linker compares their names with those of other objects, and would drop ours.
fn one_object(archive: &Path, unwinder: Option<&Path>, symbols: &Path, to: &Path) -> Result<(), String> {
    let names = fs::read_to_string(symbols).map_err(|error| format!("{}: {error}", symbols.display()))?;
    let mut cc = tool("CC", "cc");
    cc.args(["-r", "-nostdlib", "-Wl,--force-group-allocation"]);
    cc.args(names.lines().map(|name| format!("-Wl,-u,{name}")));
    run(cc.arg("-o").arg(to).arg(archive).args(unwinder))
}

/// The archive with which Rust's standard library unwinds on this target.
fn unwinder_of(target: &str) -> Result<PathBuf, String> {
    let rustc = tool("RUSTC", "rustc").args(["--print", "target-libdir", "--target", target]).output();
    let folder = rustc.map_err(|error| format!("rustc: {error}"))?;
    let archive =
        Path::new(String::from_utf8_lossy(&folder.stdout).trim()).join("self-contained/libunwind.a");
    if archive.exists() { Ok(archive) } else { Err(format!("{}: rustc brought none", archive.display())) }
}

/// Links the shared library. Calls between its own functions stay inside it.
fn link_shared(object: &Path, map: &Path, to: &Path) -> Result<(), String> {
    let mut cc = tool("CC", "cc");
    cc.args(["-shared", concat!("-Wl,-soname,", env!("PAGEPOOL_SONAME"))]);
    cc.args(["-Wl,-z,relro,-z,now", "-Wl,--gc-sections"]);
    cc.args(["-Wl,-Bsymbolic-functions", "-Wl,--as-needed"]);
    cc.arg(format!("-Wl,--version-script={}", map.display()));
    run(cc.arg("-o").arg(to).arg(object).args(["-lpthread", "-ldl", "-lm"]))
}

/// Makes all symbols except our functions local, and removes the compiler's intermediate code, which tools of
/// another version of LLVM cannot read.
fn hide(object: &Path, symbols: &Path, to: &Path, archive: &Path) -> Result<(), String> {
    let keep = format!("--keep-global-symbols={}", symbols.display());
    let mut why = String::new();
    for (objcopy, ar) in [("objcopy", "ar"), ("llvm-objcopy", "llvm-ar")] {
        let mut objcopy = tool("OBJCOPY", objcopy);
        objcopy.arg(&keep).args(["--remove-section=.llvmbc", "--remove-section=.llvmcmd"]);
        let hidden = run(objcopy.arg(object).arg(to));
        match hidden.and_then(|()| run(tool("AR", ar).arg("crsD").arg(archive).arg(to))) {
            Ok(()) => return Ok(()),
            Err(error) => why = if why.is_empty() { error } else { format!("{why}; {error}") },
        }
        let _ = fs::remove_file(archive);
    }
    Err(why)
}
