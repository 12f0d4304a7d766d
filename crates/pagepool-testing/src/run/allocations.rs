//! Operations that allocate, on the real pool and on the model.

use pagepool::{PageBuf, PageIdx};

use super::{OpRun, Out, write_stamp};
use crate::model::PageToken;

impl OpRun {
    /// Ties a token to its page, and checks that they agree.
    pub(super) fn is_page(&mut self, token: PageToken, page: PageIdx) {
        for token in self.model.take_gone() {
            if let Some(page) = self.page_of.remove(&token) {
                self.token_at.remove(&page);
            }
        }
        let known = *self.page_of.entry(token).or_insert(page);
        assert_eq!(known, page, "token {token} is another page");
        let owner = *self.token_at.entry(page).or_insert(token);
        assert_eq!(owner, token, "page {page:?} has two owners");
    }

    pub(super) fn handed_out(&mut self, pool: usize, token: PageToken, mut buffer: PageBuf) {
        self.is_page(token, buffer.page());
        self.stamps += 1;
        let stamp = self.stamps;
        write_stamp(&mut buffer, stamp);
        let (frag, special) = (buffer.is_frag(), false);
        self.buffers.push(Out { pool, token, what: buffer, frag, special, stamp });
    }

    pub(super) fn alloc_page(&mut self, pool: usize) {
        let Some(real) = &self.pools[pool] else { return };
        let (seen, predicted) = (real.alloc_page(), self.model.alloc_page(pool));
        assert_eq!(seen.is_some(), predicted.is_some(), "alloc_page");
        if let Some((buffer, token)) = seen.zip(predicted) {
            assert_eq!((buffer.offset(), buffer.len()), (0, self.model.page_size()));
            self.handed_out(pool, token, buffer);
        }
    }

    pub(super) fn alloc_bulk(&mut self, pool: usize, n: usize) {
        let Some(real) = &self.pools[pool] else { return };
        let mut buffers = Vec::with_capacity(n);
        let got = real.alloc_bulk(&mut buffers, n);
        let predicted = self.model.alloc_bulk(pool, n);
        assert_eq!((got, buffers.len()), (predicted.len(), predicted.len()), "alloc_bulk");
        for (buffer, token) in buffers.into_iter().zip(predicted) {
            self.handed_out(pool, token, buffer);
        }
    }

    pub(super) fn alloc_batch(&mut self, pool: usize, n: usize) {
        let Some(real) = &self.pools[pool] else { return };
        let mut batch = real.alloc_batch(n);
        let predicted = self.model.alloc_bulk(pool, n);
        assert_eq!(batch.len(), predicted.len(), "alloc_batch");
        let mut stamped = Vec::new();
        for (at, token) in predicted.into_iter().enumerate() {
            self.is_page(token, batch.page(at).expect("within its length"));
            self.stamps += 1;
            if let Some(word) = batch.bytes_mut(at).and_then(|bytes| bytes.first_chunk_mut()) {
                *word = self.stamps.to_le_bytes();
            }
            stamped.push((token, self.stamps));
        }
        if !batch.is_empty() {
            self.batches.push((pool, stamped, batch));
        }
    }

    /// Upper half: fourteenths of a page, so that some sizes are 0 and some exceed a page; lower half: odd
    /// bytes.
    pub(super) fn size(&self, size: u8) -> usize {
        (size as usize >> 4) * (self.model.page_size() / 14) + (size as usize & 15) * 7
    }

    pub(super) fn alloc_frag(&mut self, pool: usize, size: u8) {
        let size = self.size(size);
        let Some(real) = &self.pools[pool] else { return };
        let (seen, predicted) = (real.alloc_frag(size), self.model.alloc_frag(pool, size));
        self.frag_or_page(pool, seen, predicted);
    }

    pub(super) fn alloc(&mut self, pool: usize, size: u8) {
        let size = self.size(size);
        if size == 0 {
            return self.alloc_frag(pool, 0);
        }
        let Some(real) = &self.pools[pool] else { return };
        let (seen, predicted) = (real.alloc(size), self.model.alloc(pool, size));
        self.frag_or_page(pool, seen, predicted);
    }

    fn frag_or_page(
        &mut self,
        pool: usize,
        seen: Option<PageBuf>,
        predicted: Option<(PageToken, usize, usize)>,
    ) {
        let shape = seen.as_ref().map(|buffer| (buffer.offset(), buffer.len()));
        assert_eq!(shape, predicted.map(|(_, offset, len)| (offset, len)), "offset and true size");
        if let Some((buffer, (token, ..))) = seen.zip(predicted) {
            self.handed_out(pool, token, buffer);
        }
    }
}
