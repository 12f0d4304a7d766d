//! Frames between hosts on one machine, and Linux guests, for the tests of the workspace.
//!
//! For tests that try devices and forwarders between the two hosts of [`pagepool_link::TwoHosts`], and for
//! those that need another kernel.
//!
//! * [`FrameSocket`] and [`FrameGenerator`]: raw frames, one by one, or as many as the kernel can generate.
//! * [`FakeSwitch`]: a back end of vhost-user that a test controls.
//! * [`LinkSettings`], [`DropRule`]: settings of links that only tests change.
//! * [`TempFolder`]: a folder for temporary files.
//! * [`or_skip`]: what tests do without a capability.
//! * [`pin`], [`pin_named`]: threads on one CPU, so that measurements repeat.
//! * [`has_tool`], [`run`]: what tests do with the tools of others.
//! * [`guest`]: Linux guests under QEMU, for other kernels, cards and NUMA nodes than this machine has.

mod drop_rule;
mod frame_generator;
mod frame_socket;
pub mod guest;
mod huge_pages;
mod link_settings;
mod live_frames;
mod pin;
mod skip;
mod switch;
mod sys;
mod temp_folder;
mod tool;

pub use drop_rule::{DropRule, Hook};
pub use frame_generator::{FrameGenerator, GeneratorMode, GeneratorParams, GeneratorReport};
pub use frame_socket::{FrameBatch, FrameSocket};
pub use huge_pages::share_huge_pages;
pub use link_settings::{LinkSettings, TokenBucket};
pub use pin::{pin, pin_named};
pub use skip::or_skip;
pub use switch::{FakeSwitch, Fault, Frame, Lie, SwitchCounts, SwitchParams, Work, request};
pub use temp_folder::TempFolder;
pub use tool::{has_tool, run};
