//! Graphs: operations in an order that only their dependencies restrict, and executable graphs, which a
//! stream launches as a whole.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use foldhash::fast::FixedState;

use crate::errors::{Code, Outcome};
use crate::state::Sim;
use crate::transfer::Operation;

/// The handle of the first graph, and the distance between handles. The nodes of a graph have the handles
/// up to the next graph.
const FIRST: u64 = 1 << 56;
const STEP: u64 = 1 << 32;

/// The same for executable graphs.
const FIRST_EXECUTABLE: u64 = 1 << 57;
const STEP_EXECUTABLE: u64 = 0x100;

/// An operation of a graph.
#[derive(Clone, Debug)]
struct Node {
    operation: Operation,
    /// The nodes that come before, by handle.
    dependencies: Vec<u64>,
}

/// Nodes, each behind its dependencies.
#[derive(Debug, Default)]
struct Graph(Vec<Node>);

/// All graphs. Handles are never reused.
#[derive(Debug, Default)]
pub(crate) struct Graphs {
    live: HashMap<u64, Graph, FixedState>,
    executables: HashMap<u64, Arc<[Operation]>, FixedState>,
    made: u64,
    instantiated: u64,
}

impl Graphs {
    pub(crate) fn create(&mut self) -> u64 {
        let graph = FIRST + STEP * self.made;
        self.made += 1;
        self.live.insert(graph, Graph::default());
        graph
    }

    pub(crate) fn destroy(&mut self, graph: u64) -> Outcome {
        let destroyed = self.live.remove(&graph);
        destroyed.map(drop).ok_or(Code::INVALID_VALUE)
    }

    fn get(&self, graph: u64) -> Outcome<&Graph> {
        self.live.get(&graph).ok_or(Code::INVALID_VALUE)
    }

    /// Adds a node behind others of the same graph.
    pub(crate) fn add(
        &mut self,
        graph: u64,
        operation: Operation,
        dependencies: Vec<u64>,
    ) -> Outcome<u64> {
        let nodes = self.live.get_mut(&graph).ok_or(Code::INVALID_VALUE)?;
        nodes.0.push(Node {
            operation,
            dependencies,
        });
        Ok(graph + nodes.0.len() as u64)
    }

    /// The nodes of a graph, in the order in which they were added.
    pub(crate) fn nodes(&self, graph: u64) -> Outcome<Vec<u64>> {
        let count = self.get(graph)?.0.len() as u64;
        Ok((1..=count).map(|index| graph + index).collect())
    }

    fn node(&self, node: u64) -> Outcome<&Node> {
        let index = node.checked_sub(FIRST).ok_or(Code::INVALID_VALUE)? % STEP;
        let before = index.checked_sub(1).ok_or(Code::INVALID_VALUE)?;
        let found = self.get(node - index)?.0.get(before as usize);
        found.ok_or(Code::INVALID_VALUE)
    }

    pub(crate) fn dependencies(&self, node: u64) -> Outcome<&[u64]> {
        Ok(&self.node(node)?.dependencies)
    }

    /// `CUgraphNodeType` of a node.
    pub(crate) fn kind(&self, node: u64) -> Outcome<i32> {
        Ok(self.node(node)?.operation.node_type())
    }

    /// Whether each of some nodes of a graph is one of `last` or before one of them.
    pub(crate) fn precede(
        &self,
        graph: u64,
        nodes: impl IntoIterator<Item = u64>,
        last: &[u64],
    ) -> Outcome<bool> {
        let all = &self.get(graph)?.0;
        let mut reached = vec![false; all.len()];
        let index = |node: u64| Some(node.checked_sub(graph)?.checked_sub(1)? as usize);
        let mut pending = last.to_vec();
        while let Some(node) = pending.pop() {
            let found = index(node).and_then(|at| reached.get_mut(at).zip(all.get(at)));
            if let Some((reached, node)) = found
                && !std::mem::replace(reached, true)
            {
                pending.extend(&node.dependencies);
            }
        }
        let is_reached = |node| index(node).and_then(|at| reached.get(at)) == Some(&true);
        Ok(nodes.into_iter().all(is_reached))
    }

    fn instantiate(&mut self, graph: u64) -> Outcome<u64> {
        let nodes = &self.get(graph)?.0;
        let operations = nodes.iter().map(|node| node.operation.clone()).collect();
        let executable = FIRST_EXECUTABLE + STEP_EXECUTABLE * self.instantiated;
        self.instantiated += 1;
        self.executables.insert(executable, operations);
        Ok(executable)
    }

    pub(crate) fn destroy_executable(&mut self, executable: u64) -> Outcome {
        let destroyed = self.executables.remove(&executable);
        destroyed.map(drop).ok_or(Code::INVALID_VALUE)
    }

    /// The graph in the language of Graphviz.
    pub(crate) fn dot(&self, graph: u64) -> Outcome<String> {
        let mut text = "digraph dot {\n".to_owned();
        for (index, node) in (1_u64..).zip(&self.get(graph)?.0) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  node_{index} [label=\"{}\"];", node.operation);
            for before in &node.dependencies {
                let _ = writeln!(text, "  node_{} -> node_{index};", before % STEP);
            }
        }
        Ok(text + "}\n")
    }
}

impl Sim {
    /// Makes an executable graph from a copy of a graph.
    pub(crate) fn instantiate(&mut self, here: u32, graph: u64) -> Outcome<u64> {
        let operations = self.graphs.get(graph)?.0.len();
        self.take_graph(here, operations)?;
        self.graphs.instantiate(graph)
    }

    /// Has a stream do all operations of an executable graph.
    pub(crate) fn launch_graph(&mut self, here: u32, executable: u64, stream: u64) -> Outcome {
        let operations = self
            .graphs
            .executables
            .get(&executable)
            .ok_or(Code::INVALID_VALUE)?
            .clone();
        self.submit(here, stream, Operation::Graph(operations))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_know_what_comes_before_them() {
        let mut graphs = Graphs::default();
        graphs.create();
        let graph = graphs.create();
        let mut add = |after: &[u64]| graphs.add(graph, Operation::Work(None), after.to_vec());
        let first = add(&[]).unwrap();
        let [left, right] = [add(&[first]), add(&[first])].map(Result::unwrap);
        assert_eq!(graphs.nodes(graph), Ok(vec![first, left, right]));
        assert_eq!(graphs.dependencies(right), Ok([first].as_slice()));
        let precede = |last: &[u64]| graphs.precede(graph, [first, right], last);
        assert_eq!(precede(&[left]), Ok(false));
        assert_eq!(precede(&[right]), Ok(true));
        assert!(graphs.dot(graph).unwrap().contains("node_1 -> node_3"));
        graphs.destroy(graph).unwrap();
        for invalid in [0, graph, first, right + 1] {
            assert_eq!(graphs.dependencies(invalid), Err(Code::INVALID_VALUE));
        }
    }
}
