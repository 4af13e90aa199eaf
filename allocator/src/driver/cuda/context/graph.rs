//! The nodes of a graph that is captured.

use std::ffi::c_uint;
use std::{ptr, slice};

use cudarc::driver::sys::CUstreamCaptureStatus as CaptureStatus;

use super::{Answer, Context};
use crate::driver::cuda::symbols::{Node, NodeCalls, Stream};
use crate::driver::{GraphNode, StreamCapture};

impl Context {
    /// Returns the capture of a stream and the nodes that its next operation follows; `None` if it is not captured.
    pub(crate) fn capture_of(
        &self,
        calls: &NodeCalls,
        stream: Stream,
    ) -> Answer<Option<StreamCapture>> {
        let _entered = self.enter()?;
        let mut status: c_uint = 0;
        let (mut id, mut graph) = (0, ptr::null_mut());
        let (mut nodes, mut edges, mut count) = (ptr::null(), ptr::null(), 0);
        // SAFETY: each argument receives the one number or pointer it writes. The stream is live: see [`Context`].
        let answer = unsafe {
            (calls.capture_info)(
                stream,
                &raw mut status,
                &raw mut id,
                &raw mut graph,
                &raw mut nodes,
                &raw mut edges,
                &raw mut count,
            )
        };
        self.check("cuStreamGetCaptureInfo", answer)?;
        if status != CaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE as c_uint {
            return Ok(None);
        }
        let last = if nodes.is_null() {
            &[]
        } else {
            // SAFETY: the driver owns `count` nodes there, which stay until this stream is used or its capture ends.
            unsafe { slice::from_raw_parts(nodes, count) }
        };
        let last = last.iter().map(|&node| GraphNode(node as u64)).collect();
        Ok(Some(StreamCapture { id, last }))
    }

    /// Returns the nodes that a node follows directly.
    pub(crate) fn dependencies(
        &self,
        calls: &NodeCalls,
        node: GraphNode,
    ) -> Answer<Vec<GraphNode>> {
        let _entered = self.enter()?;
        let node = node.0 as Node;
        let mut count = 0;
        // SAFETY: without lists, only `count` is written. The node is one of a capture that has not ended.
        let answer =
            unsafe { (calls.dependencies)(node, ptr::null_mut(), ptr::null_mut(), &raw mut count) };
        self.check("cuGraphNodeGetDependencies", answer)?;
        if count == 0 {
            // The driver refuses an empty list as an invalid argument.
            return Ok(Vec::new());
        }
        let (mut nodes, mut edges) = (vec![0; count], vec![0; count]);
        // SAFETY: both lists have room for `count` entries, and no more are written.
        let answer = unsafe {
            (calls.dependencies)(node, nodes.as_mut_ptr(), edges.as_mut_ptr(), &raw mut count)
        };
        self.check("cuGraphNodeGetDependencies", answer)?;
        nodes.truncate(count);
        Ok(nodes
            .into_iter()
            .map(|node| GraphNode(node as u64))
            .collect())
    }
}
