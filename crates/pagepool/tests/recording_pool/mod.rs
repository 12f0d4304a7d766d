//! A pool that records who holds its buffers.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use pagepool::{Bound, DmaDomain, Holders, HoldersView, IdentityDomain, Pool, PoolParams, PoolRef};
use pagepool_testing::PlainMemory;

pub const SITES: Holders = Holders::Sites { stacks: None };

pub fn params(holders: Holders) -> PoolParams {
    let domain: Arc<dyn DmaDomain> = Arc::new(IdentityDomain::new("holders"));
    PoolParams { holders, domains: vec![domain], ..Default::default() }
}

pub fn pool(params: PoolParams) -> Bound {
    let memory = PlainMemory::new(512, params.order).unwrap();
    Pool::new(params, memory).unwrap().bind()
}

pub fn held(pool: &PoolRef) -> HoldersView {
    pool.holders().unwrap()
}
