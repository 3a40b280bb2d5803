from psoup.engine.run import main

raise SystemExit(main())
