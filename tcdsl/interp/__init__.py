"""The reference: comprehensions run by NumPy, knowing neither polyhedra nor code generators."""
