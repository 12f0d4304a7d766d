//! The row of a pool in the published file.

use crate::core::geometry::{Geometry, PoolSizes};
use crate::core::pool_core::PoolCore;
use crate::pool::params::{Holders, OnBusy, PoolParams};
use crate::sys::placed::{Shared, block_of};
use crate::sys::published_entry::lines;
use crate::sys::published_layout::POOL_KIND;
use crate::sys::published_memory::{PublishedMemory, PublishedRow, entry_row};

/// The parameters for observers, with the values chosen for zeroes; empty if this process does not publish.
pub(crate) fn text_of(params: &PoolParams, sizes: &PoolSizes, geometry: &Geometry) -> String {
    if PublishedMemory::current().is_none() {
        return String::new();
    }
    let numbers = [
        ("order", params.order.into()),
        ("cache_size", sizes.cache),
        ("refill", sizes.refill),
        ("ring_size", sizes.ring),
        ("max_lanes", sizes.lanes),
        ("lane_size", sizes.lane),
        ("headroom", params.headroom),
        ("max_len", params.max_len),
        ("tailroom", params.tailroom),
        ("frag_align", params.frag_align),
        ("low_water", params.low_water),
        ("chains", sizes.chains),
        ("defer_capacity", sizes.deferred),
        ("domains", params.domains.len()),
        ("colour", params.colour.into()),
        ("colours", geometry.colours()),
        ("node_blind", params.node_blind.into()),
        ("sync_for_device", params.sync_for_device.into()),
        ("wakeup", params.wakeup.into()),
        ("tagging", params.tagging.into()),
    ];
    let nid = params.nid.map_or("any".into(), |node| node.0.to_string());
    let on_busy = match params.on_busy {
        OnBusy::Keep => "keep".into(),
        OnBusy::Skip { ahead } => format!("skip {ahead}"),
        OnBusy::Release => "release".into(),
    };
    let holders = match params.holders {
        Holders::Off => "off".into(),
        Holders::Ages => "ages".into(),
        Holders::Sites { stacks: None } => "sites".into(),
        Holders::Sites { stacks: Some(one_in) } => format!("sites, 1 stack in {one_in}"),
    };
    let numbers: String = numbers.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    numbers + &lines(&[("nid", &nid), ("on_busy", &on_busy), ("holders", &holders)])
}

/// Publishes a new pool, which has no other user yet.
pub(crate) fn enter(pool: &PoolCore, params: &str) {
    let row = PublishedRow::enter(|| {
        let mut row = entry_row(POOL_KIND, pool.id.into(), pool.area_id, &pool.name, params);
        row.block = block_of(pool, 1)?;
        // A pool whose lanes found no room is not published: its numbers would not add up.
        if !pool.lanes.all().is_empty() {
            row.lanes = pool.lanes.block()?;
        }
        if let Some(deferred) = &pool.deferred {
            row.deferred = Shared::block(deferred, 1)?;
        }
        if let Some(holders) = &pool.holders {
            row.holders = holders.block()?;
        }
        row.mem_id = pool.mem_id.get().into();
        row.page_bytes = pool.geometry.page_size() as u64;
        Some(row)
    });
    if let Some(row) = row {
        *pool.row.lock() = Ok(row);
    }
}
