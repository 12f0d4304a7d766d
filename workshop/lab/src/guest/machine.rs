//! A guest: its machine, its files, and the program that it runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pagepool_link::Namespace;

use super::card::{GuestCard, Iommu};
use super::error::GuestError;
use super::files::GuestFiles;
use super::host_tools::HostTools;
use super::kernel_image::KernelImage;
use super::kernel_modules::KernelModules;

/// From the guest to this process: the program's output and errors, the files in `/out`, and the exit status.
pub(super) const CHANNELS: [&str; 4] = ["out", "err", "files", "status"];

/// A machine with its kernel and files. [`Guest::new`] has one node and no cards; fields set everything else.
#[derive(Clone, Debug)]
pub struct Guest {
    /// QEMU and busybox.
    pub tools: HostTools,
    /// The kernel.
    pub kernel: KernelImage,
    /// Virtual CPUs, spread over the nodes.
    pub cpus: u32,
    /// Memory in MiB, spread over the nodes.
    pub memory_mib: u32,
    /// NUMA nodes: 1 to 8, at most one per CPU.
    pub nodes: u32,
    /// The IOMMU; virtio cards are behind it, too.
    pub iommu: Iommu,
    /// The cards: eth0, eth1, ...
    pub cards: Vec<GuestCard>,
    /// Where QEMU finds taps; by default the caller's network namespace.
    pub taps: Option<Arc<Namespace>>,
    /// Besides those of the cards: `NAME`, or `NAME:PARAMETER=VALUE`.
    pub modules: Vec<String>,
    /// Files and folders of this machine, with their paths in the guest.
    pub files: Vec<(PathBuf, String)>,
    /// Generated files: paths in the guest, with their texts.
    pub texts: Vec<(String, String)>,
    /// Shell commands before the program. If one fails, the guest ends with 125.
    pub setup: String,
    /// Shell commands after the program, whatever its exit status.
    pub after: String,
    /// Receives the guest's `/out`.
    pub out: Option<PathBuf>,
    /// Additions to the kernel's command line.
    pub append: String,
    /// Further arguments for QEMU.
    pub qemu: Vec<String>,
    /// The time limit of everything together.
    pub timeout: Duration,
}

impl Guest {
    /// A guest with two CPUs and 2 GiB on one node, without cards.
    pub fn new(tools: HostTools, kernel: KernelImage) -> Self {
        Self {
            tools,
            kernel,
            cpus: 2,
            memory_mib: 2048,
            nodes: 1,
            iommu: Iommu::None,
            cards: Vec::new(),
            taps: None,
            modules: Vec::new(),
            files: Vec::new(),
            texts: Vec::new(),
            setup: String::new(),
            after: String::new(),
            out: None,
            append: String::new(),
            qemu: Vec::new(),
            timeout: Duration::from_secs(120),
        }
    }

    /// Refuses, more clearly, what QEMU would refuse.
    pub(super) fn check(&self) -> Result<(), GuestError> {
        let refused = |text: String| Err(GuestError::Failed(text));
        if !(1..=8).contains(&self.nodes) || self.cpus < self.nodes || self.cpus > 64 {
            return refused(format!(
                "{} nodes with {} CPUs, but must be 1 to 8 nodes, at least one CPU each, 64 CPUs at most",
                self.nodes, self.cpus
            ));
        }
        if self.memory_mib / self.nodes < 128 {
            return refused(format!("{} MiB of memory, but each node requires 128 MiB", self.memory_mib));
        }
        if self.cards.len() > 16 {
            return refused(format!("{} cards, but must be at most 16", self.cards.len()));
        }
        Ok(())
    }

    /// QEMU's standard input provides the initial files; `work` has the sockets of the channels.
    pub(super) fn arguments(&self, work: &Path) -> Vec<String> {
        let kernel = self.kernel.image().display().to_string();
        let mut all = words("-nodefaults -no-user-config -display none -no-reboot -accel tcg,thread=multi");
        all.extend(words(&format!("-cpu max -m {}", self.memory_mib / self.nodes * self.nodes)));
        all.extend(["-kernel".into(), kernel, "-initrd".into(), "/proc/self/fd/0".into()]);
        all.extend(words(match self.iommu {
            Iommu::None => "-machine q35",
            Iommu::Intel => {
                "-machine q35,kernel-irqchip=split \
                 -device intel-iommu,intremap=on,caching-mode=on,device-iotlb=on"
            }
            Iommu::Virtio => "-machine q35 -device virtio-iommu-pci,addr=1",
        }));
        all.extend(self.node_arguments());
        all.extend(channel_arguments(work));
        for (number, card) in self.cards.iter().enumerate() {
            all.extend(card.arguments(number, self.iommu));
        }
        all.extend(self.qemu.clone());
        let iommu = if self.iommu == Iommu::Intel { "intel_iommu=on" } else { "" };
        // `panic=-1` ends a guest whose kernel panics; TCG needs the others because its timer is not
        // calibrated.
        all.extend([
            "-append".into(),
            format!(
                "console=ttyS0 panic=-1 net.ifnames=0 no_timer_check lpj=4000000 nowatchdog mitigations=off \
             audit=0 quiet loglevel=6 {iommu} {}",
                self.append
            ),
        ]);
        all
    }

    fn node_arguments(&self) -> Vec<String> {
        let (cpus, nodes) = (self.cpus, self.nodes);
        let cpus = cpus / nodes * nodes;
        let mut all = words(&format!("-smp {cpus},sockets={nodes},cores={},threads=1", cpus / nodes));
        for node in 0..nodes {
            let (first, last) = (node * cpus / nodes, (node + 1) * cpus / nodes - 1);
            let size = self.memory_mib / nodes;
            all.extend(words(&format!("-object memory-backend-ram,id=mem{node},size={size}M")));
            all.extend(words(&format!("-numa node,nodeid={node},memdev=mem{node},cpus={first}-{last}")));
        }
        all
    }

    pub(super) fn content(&self, command: &[String]) -> Result<GuestFiles, GuestError> {
        let mut files = GuestFiles::default();
        for folder in ["sbin", "proc", "sys", "dev", "out", "root", "etc", "job"] {
            files.folder(folder);
        }
        let busybox = &self.tools.busybox;
        let bytes = std::fs::read(busybox).map_err(|error| GuestError::file("reading", busybox, &error))?;
        files.program("bin/busybox", bytes);
        files.program("init", include_bytes!("init.sh").to_vec());
        files.program("bin/vfio", include_bytes!("vfio.sh").to_vec());
        self.add_modules(&mut files)?;
        for (host, guest) in &self.files {
            files.copy(host, guest)?;
        }
        for (path, text) in &self.texts {
            files.plain(path, text.clone().into_bytes());
        }
        let mut command = command.to_vec();
        if let Some(program) = command.first_mut()
            && Path::new(program).is_file()
        {
            let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
            let inside = format!("/job/{name}");
            files.copy(Path::new(program), &inside)?;
            *program = inside;
        }
        files.plain("job/run", self.job(&command).into_bytes());
        Ok(files)
    }

    fn add_modules(&self, files: &mut GuestFiles) -> Result<(), GuestError> {
        let modules = KernelModules::read(&self.kernel.modules()?)?;
        let mut loaded = Vec::new();
        let mut wanted = vec!["virtio_pci", "virtio_console"];
        wanted.extend(self.cards.iter().map(GuestCard::driver));
        wanted.extend((self.iommu == Iommu::Virtio).then_some("virtio_iommu"));
        for name in wanted {
            modules.add(name, &mut loaded)?;
        }
        for module in &self.modules {
            let (name, parameters) = module.split_once(':').unwrap_or((module, ""));
            modules.add(name, &mut loaded)?;
            if !parameters.is_empty() {
                let path = format!("modules/{}.parameters", name.replace('-', "_"));
                files.plain(&path, parameters.replace(':', " ").into_bytes());
            }
        }
        let list: String = loaded.iter().map(|module| format!("{}\n", module.name)).collect();
        files.plain("modules/list", list.into_bytes());
        for module in loaded {
            files.plain(&format!("modules/{}.ko", module.name), module.bytes);
        }
        Ok(())
    }

    /// The script for the guest's shell.
    fn job(&self, command: &[String]) -> String {
        let quoted: Vec<_> =
            command.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
        let mut job = "export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/root; cd /root\n".to_owned();
        if !self.setup.is_empty() {
            let setup = &self.setup;
            job += &format!("( set -e\n{setup}\n) || {{ echo 'the setup failed' >&2; exit 125; }}\n");
        }
        job + &format!("{}\nstatus=$?\n{}\nexit $status\n", quoted.join(" "), self.after)
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// The console is a file; each channel is a port that QEMU connects to a socket of this process.
fn channel_arguments(work: &Path) -> Vec<String> {
    let work = work.display();
    let mut all = vec!["-chardev".into(), format!("file,id=console,path={work}/console")];
    all.extend(words("-serial chardev:console -device virtio-serial-pci,bus=pcie.0,addr=0x2"));
    for name in CHANNELS {
        all.extend(["-chardev".into(), format!("socket,id={name},path={work}/{name},server=off")]);
        all.extend(["-device".into(), format!("virtserialport,chardev={name},name={name}")]);
    }
    all
}
