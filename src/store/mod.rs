//! The TinyAgents store on disk.
