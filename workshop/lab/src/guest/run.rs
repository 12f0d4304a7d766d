//! Starts QEMU, reads its channels until it ends, and ends it at the time limit.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::error::GuestError;
use super::host_tools::in_path;
use super::machine::{CHANNELS, Guest};
use crate::temp_folder::TempFolder;

const LOOK: Duration = Duration::from_millis(20);

/// How a guest ended.
#[derive(Clone, Debug)]
pub struct GuestEnd {
    /// The program's; `None` if the guest did not end properly, or in time.
    pub status: Option<i32>,
    /// Whether the time limit ended it.
    pub late: bool,
    /// The output of the kernel.
    pub console: String,
    /// The total time.
    pub took: Duration,
}

struct Qemu(Child);

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended
        let _ = self.0.wait();
    }
}

impl Guest {
    /// Boots the guest and runs a program in it: a file of this machine, or a name in the guest. Its output
    /// goes to `out` and `err` as it arrives.
    ///
    /// # Errors
    ///
    /// [`GuestError`] if the guest cannot be started. A guest that ends early is a [`GuestEnd`] without
    /// status.
    ///
    /// # Examples
    ///
    /// ```
    /// use pagepool_lab::guest::{Guest, GuestError, HostTools, KernelImage};
    ///
    /// # if std::env::var_os("GUEST_EXAMPLE").is_none() { return Ok(()) } // it downloads a kernel
    /// let tools = HostTools::find()?;
    /// let guest = Guest::new(tools.clone(), KernelImage::find(&tools, "6.1")?);
    /// let mut said = Vec::new();
    /// let end = guest.run(&["uname".into(), "-r".into()], &mut said, &mut std::io::sink())?;
    /// assert_eq!(end.status, Some(0));
    /// # Ok::<_, GuestError>(())
    /// ```
    pub fn run(
        &self,
        command: &[String],
        out: &mut (dyn Write + Send),
        err: &mut (dyn Write + Send),
    ) -> Result<GuestEnd, GuestError> {
        let started = Instant::now();
        self.check()?;
        let work = TempFolder::new("guest");
        let work = work.map_err(|error| GuestError::Failed(format!("making a temporary folder: {error}")))?;
        let work = work.path();
        let files = self.write_files(command, &work.join("initrd"))?;
        let listeners = listen(work)?;
        let mut qemu = self.start(work, files)?;
        let deadline = started + self.timeout;
        let mut status = None;
        if let Some(channels) = accept(&listeners, &mut qemu, deadline) {
            let (left, said) = read(channels, out, err, &mut qemu, deadline);
            status = String::from_utf8_lossy(&said).trim().parse().ok();
            self.unpack(&left)?;
        }
        if status.is_none() {
            refusal(&mut qemu, work)?;
        }
        drop(qemu);
        let console = fs::read(work.join("console")).unwrap_or_default();
        let console = String::from_utf8_lossy(&console).into_owned();
        Ok(GuestEnd { status, late: Instant::now() >= deadline, console, took: started.elapsed() })
    }

    /// The file has no name any more: a killed run leaves nothing behind.
    fn write_files(&self, command: &[String], at: &Path) -> Result<fs::File, GuestError> {
        let files = self.content(command)?;
        let written = fs::File::create(at).map(std::io::BufWriter::new);
        let written = written.and_then(|mut file| files.write(&mut file).and_then(|()| file.flush()));
        let opened = written.and_then(|()| fs::File::open(at));
        let opened = opened.and_then(|file| fs::remove_file(at).map(|()| file));
        opened.map_err(|error| GuestError::file("writing", at, &error))
    }

    fn start(&self, work: &Path, files: fs::File) -> Result<Qemu, GuestError> {
        let qemu = &self.tools.qemu;
        let mut command = Command::new(qemu);
        if let Some(setpriv) = in_path(Path::new("setpriv")) {
            // Kills the guest when this process ends, however it ends.
            command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL", "--"]).arg(qemu);
        }
        let said = fs::File::create(work.join("qemu")).map_or_else(|_| Stdio::null(), Stdio::from);
        command.args(self.arguments(work)).stdin(files).stdout(Stdio::null()).stderr(said);
        let mut spawn = move || command.spawn();
        let child = match &self.taps {
            Some(namespace) => namespace.run(spawn),
            None => spawn(),
        };
        Ok(Qemu(child.map_err(|error| GuestError::file("starting", qemu, &error))?))
    }

    /// Unpacks the guest's `/out`.
    fn unpack(&self, archive: &[u8]) -> Result<(), GuestError> {
        let (Some(folder), false) = (&self.out, archive.is_empty()) else { return Ok(()) };
        let failed = |error| GuestError::file("writing", folder, &error);
        fs::create_dir_all(folder).map_err(failed)?;
        let mut tar = Command::new("tar");
        tar.arg("-x").arg("-C").arg(folder).stdin(Stdio::piped());
        let mut child = tar.spawn().map_err(failed)?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(archive).map_err(failed)?;
        }
        let status = child.wait().map_err(failed)?;
        if !status.success() {
            let text =
                format!("tar ended with {status}: the guest's files in {} are incomplete", folder.display());
            return Err(GuestError::Failed(text));
        }
        Ok(())
    }
}

/// QEMU's message, if it ended because it cannot do what was requested.
fn refusal(qemu: &mut Qemu, work: &Path) -> Result<(), GuestError> {
    match qemu.0.try_wait() {
        Ok(Some(status)) if status.code().is_some_and(|code| code != 0) => {
            let said = fs::read(work.join("qemu")).unwrap_or_default();
            let said = String::from_utf8_lossy(&said);
            Err(GuestError::Failed(format!("QEMU ended with {status}: {}", said.trim())))
        }
        _ => Ok(()),
    }
}

fn listen(work: &Path) -> Result<Vec<UnixListener>, GuestError> {
    let listen = |name: &&str| {
        let at = work.join(name);
        let listener =
            UnixListener::bind(&at).and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
        listener.map_err(|error| GuestError::file("listening on", &at, &error))
    };
    CHANNELS.iter().map(listen).collect()
}

/// QEMU opens the connections when it starts. `None` if it ends first, or at the deadline.
fn accept(listeners: &[UnixListener], qemu: &mut Qemu, deadline: Instant) -> Option<[UnixStream; 4]> {
    let mut channels = Vec::new();
    while channels.len() < listeners.len() {
        match listeners[channels.len()].accept() {
            Ok((channel, _)) => channels.push(channel),
            Err(_) if Instant::now() >= deadline || !matches!(qemu.0.try_wait(), Ok(None)) => return None,
            Err(_) => std::thread::sleep(LOOK),
        }
    }
    channels.try_into().ok()
}

/// Reads the channels until QEMU ends. Returns the content of the last two.
fn read(
    [for_out, for_err, for_files, for_status]: [UnixStream; 4],
    out: &mut (dyn Write + Send),
    err: &mut (dyn Write + Send),
    qemu: &mut Qemu,
    deadline: Instant,
) -> (Vec<u8>, Vec<u8>) {
    std::thread::scope(|scope| {
        scope.spawn(|| pass_on(for_out, out));
        scope.spawn(|| pass_on(for_err, err));
        let left = scope.spawn(|| all_of(for_files));
        let status = scope.spawn(|| all_of(for_status));
        wait_until(qemu, deadline);
        (left.join().unwrap_or_default(), status.join().unwrap_or_default())
    })
}

/// At the deadline kills QEMU, which closes its channels.
fn wait_until(qemu: &mut Qemu, deadline: Instant) {
    while matches!(qemu.0.try_wait(), Ok(None)) && Instant::now() < deadline {
        std::thread::sleep(LOOK);
    }
    let _ = qemu.0.kill(); // it may have ended
    let _ = qemu.0.wait();
}

fn pass_on(mut from: UnixStream, to: &mut dyn Write) {
    let mut bytes = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        // A closed output must not stop the guest.
        let _ = to.write_all(&bytes[..length]).and_then(|()| to.flush());
    }
}

fn all_of(mut from: UnixStream) -> Vec<u8> {
    let mut all = Vec::new();
    let _ = from.read_to_end(&mut all); // bytes before an error count
    all
}
