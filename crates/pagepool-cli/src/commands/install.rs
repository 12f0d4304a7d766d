//! `pagepool install`: copies the command, its manual pages and its shell completions under a prefix.

pub mod completions;
pub mod man;

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap_complete::Shell;

use self::completions::write_script;
use self::man::write_pages;
use crate::file_name::file_name;
use crate::report::output;
use crate::run_command::RunCommand;

/// The completion scripts: shell, folder below the prefix, file.
const SCRIPTS: &[(Shell, &str, &str)] = &[
    (Shell::Bash, "share/bash-completion/completions", "pagepool"),
    (Shell::Fish, "share/fish/vendor_completions.d", "pagepool.fish"),
    (Shell::Zsh, "share/zsh/site-functions", "_pagepool"),
];

#[derive(Args)]
pub struct InstallArgs {
    /// Installation prefix: files go to bin and share below it
    #[arg(long, value_name = "DIR", default_value = "/usr/local")]
    prefix: PathBuf,
    /// Staging directory that is put before the prefix, for packagers
    #[arg(long, value_name = "DIR", value_parser = file_name())]
    destdir: Option<PathBuf>,
}

impl RunCommand for InstallArgs {
    fn run(&self) -> Result<ExitCode, String> {
        if !self.prefix.is_absolute() {
            let prefix = self.prefix.display();
            return Err(format!("--prefix is {prefix}, but must be an absolute path"));
        }
        let root = match &self.destdir {
            Some(destdir) => destdir.join(self.prefix.strip_prefix("/").unwrap_or(&self.prefix)),
            None => self.prefix.clone(),
        };
        install_command(&root)?;
        write_pages(&folder(&root, "share/man/man1")?)?;
        for (shell, below, file) in SCRIPTS {
            let path = folder(&root, below)?.join(file);
            let written = File::create(&path).and_then(|mut file| write_script(*shell, &mut file));
            written.map_err(|error| format!("{}: {error}", path.display()))?;
        }
        output::line(format_args!("pagepool {} is in {}", env!("CARGO_PKG_VERSION"), root.display()));
        Ok(ExitCode::SUCCESS)
    }
}

/// Copies the running executable. A rename puts the copy in place as a whole: the installed file may be the
/// running executable, and the disk may be full.
fn install_command(root: &Path) -> Result<(), String> {
    let from = std::env::current_exe().map_err(|error| format!("the running executable: {error}"))?;
    let to = folder(root, "bin")?.join("pagepool");
    let copy = to.with_extension("new");
    let copied = fs::copy(&from, &copy)
        .and_then(|_| fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)))
        .and_then(|()| fs::rename(&copy, &to)); // a process that runs the old one keeps it
    copied.map_err(|error| {
        let _ = fs::remove_file(&copy);
        format!("{} to {}: {error}", from.display(), to.display())
    })
}

/// A folder below the root, which is created if it is missing.
fn folder(root: &Path, below: &str) -> Result<PathBuf, String> {
    let path = root.join(below);
    fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}
