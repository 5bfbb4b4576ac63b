//! Settings, restarts, lost scripts.
