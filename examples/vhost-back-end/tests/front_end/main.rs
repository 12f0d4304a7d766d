//! The front end of `pagepool-net` against the back end.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

mod conformance;
mod death;
mod echo;
mod host;
mod kills;

use std::fs::read_dir;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pagepool::{Arena, ArenaParams, Backing, PoolParams};
use pagepool_lab::TempFolder;
use pagepool_net::{OpenParams, OpenedDevice, open_devices};

/// Longer than anything takes that comes at all.
const LIMIT: Duration = Duration::from_secs(60);

/// A private folder, and the path of a socket in it.
fn place() -> (TempFolder, PathBuf) {
    let folder = TempFolder::new("pagepool-vhost").unwrap();
    let socket = folder.path().join("sock");
    (folder, socket)
}

/// How many files are in the folder.
fn files(folder: &TempFolder) -> usize {
    read_dir(folder.path()).unwrap().count()
}

/// Memory that a back end can map.
fn arena() -> Arc<Arena> {
    let backing = Backing::Memfd { huge: false };
    Arena::new(ArenaParams { max_bytes: 16 << 20, backing, ..Default::default() }).unwrap()
}

/// Short rings, which are often full. Packets may have several buffers.
fn short_rings() -> OpenParams {
    let pool = PoolParams { chains: 512, headroom: 256, wakeup: true, ..Default::default() };
    OpenParams { rx_ring: 64, tx_ring: 64, multi_buffer: true, pool, ..Default::default() }
}

/// Opens queue pairs of the socket, with words like `,server=1` after it.
fn open(socket: &Path, words: &str, pairs: &[u32], params: &OpenParams) -> Vec<OpenedDevice> {
    let name = format!("vhost_user:{}{words}", socket.display());
    let opened = open_devices(&[(&name, pairs)], params, &arena());
    opened.unwrap_or_else(|error| panic!("{name}: {error}")).remove(0)
}
