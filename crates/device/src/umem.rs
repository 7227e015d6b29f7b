//! The memory of a queue's frames: a memfd, so that it can outlive the process that fills it.

use crate::claim::Claim;
use crate::error::{Doing, Error, Result};
use crate::layout::{CHUNK, Layout, WRITTEN};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;

/// Nobody can take mapped memory away.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Makes the memory of a queue.
pub(crate) fn create(layout: &Layout) -> Result<OwnedFd> {
    layout.check()?;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("sidestep-umem", flags).doing("make memory for frames")?;
    ftruncate(&file, layout.size() as u64).doing("make memory for frames")?;
    pwrite(&file, &layout.to_bytes(), layout.frames() as u64).doing("write the layout of frames")?;
    fcntl_add_seals(&file, SEALS).doing("seal the memory of frames")?;
    Ok(file)
}

/// Frames that this process has mapped and that only it uses.
pub(crate) struct Umem {
    file: OwnedFd,
    layout: Layout,
    start: *mut u8,
    claim: Claim,
}

// SAFETY: the mapping is owned by the value. Its methods hand out no two references to the same frame: see there.
unsafe impl Send for Umem {}
// SAFETY: as above.
unsafe impl Sync for Umem {}

impl Umem {
    /// Maps memory that was made by [`create`], in whatever process.
    pub fn map(file: OwnedFd) -> Result<Umem> {
        let layout = layout_of(file.as_fd())?;
        let claim = Claim::new(file.as_fd())?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { mmap(std::ptr::null_mut(), layout.frames(), protection, flags, &file, 0) };
        Ok(Umem { start: start.doing("map the memory of frames")?.cast(), file, layout, claim })
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub fn claim(&self) -> BorrowedFd<'_> {
        self.claim.file()
    }

    pub fn start(&self) -> *mut c_void {
        self.start.cast()
    }

    /// The bytes of a received frame, or None if they are not inside of one chunk of a frame to receive.
    ///
    /// # Safety
    ///
    /// The frame is in the receive ring, and is not given back while the slice lives.
    pub unsafe fn received(&self, address: u64, length: u32) -> Option<&[u8]> {
        let (address, length) = (usize::try_from(address).ok()?, length as usize);
        let is_one_chunk = address % CHUNK + length <= CHUNK;
        if !is_one_chunk || address >= self.layout.receive_frames as usize * CHUNK {
            return None;
        }
        // SAFETY: inside of the mapping, as checked. Nobody writes a frame that is in the receive ring.
        Some(unsafe { std::slice::from_raw_parts(self.start.add(address), length) })
    }

    /// A chunk to be sent, or None if there is none at this address.
    ///
    /// # Safety
    ///
    /// The frame is neither in the send ring nor with the kernel, and no other slice of it lives.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn to_send(&self, address: u64) -> Option<&mut [u8]> {
        let range = self.layout.send_address(0)..self.layout.frames() as u64;
        if !address.is_multiple_of(CHUNK as u64) || !range.contains(&address) {
            return None;
        }
        // SAFETY: inside of the mapping, as checked; the caller alone has the frame.
        Some(unsafe { std::slice::from_raw_parts_mut(self.start.add(address as usize), CHUNK) })
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: made by `map`, and all slices are borrowed from `self`.
        let _ = unsafe { munmap(self.start.cast(), self.layout.frames()) };
    }
}

fn layout_of(file: BorrowedFd) -> Result<Layout> {
    let mut bytes = [0; WRITTEN];
    let size = fstat(file).doing("look at the memory of frames")?.st_size;
    let seals = fcntl_get_seals(file).map_err(|_| Error::NotADevice("a UMEM is no memfd"))?;
    if !seals.contains(SEALS) {
        return Err(Error::NotADevice("a UMEM is not sealed"));
    }
    let at = u64::try_from(size).unwrap_or_default().saturating_sub(CHUNK as u64);
    let read = pread(file, &mut bytes, at).doing("read the layout of frames")?;
    let layout = Layout::from_bytes(&bytes)?;
    if read != WRITTEN || layout.frames() as u64 != at {
        return Err(Error::NotADevice("a UMEM has another size than its layout"));
    }
    Ok(layout)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout =
        Layout { device: 1, queue: 0, receive_frames: 64, send_frames: 64, several_chunks: true, inlet: None };

    #[test]
    fn only_one_holder_maps_it_at_a_time() {
        let file = create(&LAYOUT).unwrap();
        let copy = file.try_clone().unwrap();
        let umem = Umem::map(file).unwrap();
        assert_eq!(umem.layout(), &LAYOUT);
        assert!(matches!(Umem::map(copy.try_clone().unwrap()), Err(Error::InUse)));
        drop(umem);
        Umem::map(copy).unwrap();
    }

    #[test]
    fn addresses_outside_are_refused() {
        let umem = Umem::map(create(&LAYOUT).unwrap()).unwrap();
        let end = 64 * CHUNK as u64;
        // SAFETY: there are no rings; nothing uses these frames.
        unsafe {
            assert_eq!(umem.received(256, 100).map(<[u8]>::len), Some(100));
            assert_eq!(umem.received(end - 100, 100).map(<[u8]>::len), Some(100));
            assert!(umem.received(end - 100, 101).is_none() && umem.received(end, 1).is_none());
            assert!(umem.received(u64::MAX, 1).is_none() && umem.received(0, u32::MAX).is_none());
            assert_eq!(umem.to_send(end).map(|chunk| chunk.len()), Some(CHUNK));
            assert!(umem.to_send(end - CHUNK as u64).is_none() && umem.to_send(end + 1).is_none());
            assert!(umem.to_send(2 * end).is_none());
        }
    }

    #[test]
    fn other_files_are_refused() {
        let open = memfd_create("x", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&open, LAYOUT.size() as u64).unwrap();
        assert!(matches!(Umem::map(open), Err(Error::NotADevice(_))));
        let other = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(matches!(Umem::map(other.into()), Err(Error::NotADevice(_))));
    }
}
