"""The store: models, migrations and repositories of prompt sets, calibrations, audit sessions and jobs.

The package knows nothing of the method or of the application. Callers open one
:class:`db.database.Database`, hand it to the repositories of :mod:`db.repositories`, and get
the frozen records of :mod:`db.records` back; no mapped object leaves the package.
"""
